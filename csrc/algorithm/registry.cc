// The registry of algorithms. To add one, write a file that defines x_algorithm() and add its row
// here.
#include <array>

#include "algorithm/schedule.h"
#include "base/config.h"

namespace ringdist {

Algorithm ring_algorithm();
Algorithm hierarchical_algorithm();
Algorithm hierarchical_direct_algorithm();
Algorithm direct_algorithm();
Algorithm one_shot_algorithm();
Algorithm recursive_doubling_algorithm();
Algorithm tree_algorithm();
Algorithm dissemination_algorithm();

std::span<const Algorithm> algorithms() {
  static const std::array kTable{
      ring_algorithm(),         direct_algorithm(),
      one_shot_algorithm(),     recursive_doubling_algorithm(),
      tree_algorithm(),         dissemination_algorithm(),
      hierarchical_algorithm(), hierarchical_direct_algorithm(),
  };
  return kTable;
}

const Algorithm* find_algorithm(std::string_view name) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.name == name) return &algorithm;
  return nullptr;
}

Error check_forced_algorithm(const Config& config) {
  if (config.algorithm.empty() || find_algorithm(config.algorithm)) return {};
  return config.reject("algorithm", "\"\", " + algorithm_names());
}

std::string algorithm_names() {
  std::string out;
  for (const Algorithm& algorithm : algorithms()) {
    if (!out.empty()) out += ", ";
    out += algorithm.name;
  }
  return out;
}

}  // namespace ringdist
