#include "os/environment.h"

#include <stdlib.h>
#include <unistd.h>

#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ringdist {
namespace {

// Returns the environment with the missing settings appended. Returns an empty vector if none is
// missing.
std::vector<char*> completed(char* const* there, std::span<const char* const> settings) {
  std::vector<char*> missing;
  for (const char* const setting : settings) {
    const std::string text(setting);
    if (getenv(text.substr(0, text.find('=')).c_str()) == nullptr)
      missing.push_back(const_cast<char*>(setting));  // nothing writes to it
  }
  if (missing.empty()) return missing;
  std::vector<char*> out;
  for (; there && *there; ++there) out.push_back(*there);
  out.insert(out.end(), missing.begin(), missing.end());
  out.push_back(nullptr);
  return out;
}

}  // namespace

// The new array is complete before one compare-and-swap publishes it. So a reader without a lock
// sees the old array or the new one.
void set_defaults(std::span<const char* const> settings) {
  static std::mutex mutex;
  static auto* const kept =
      new std::deque<std::vector<char*>>();  // never freed: threads may still read any of them
  std::lock_guard lock(mutex);
  char** before = __atomic_load_n(&environ, __ATOMIC_ACQUIRE);
  do {  // repeated if another thread moved the environment meanwhile
    auto after = completed(before, settings);
    if (after.empty()) return;
    kept->push_back(std::move(after));
  } while (!__atomic_compare_exchange_n(&environ, &before, kept->back().data(), /*weak=*/false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

}  // namespace ringdist
