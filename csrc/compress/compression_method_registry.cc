#include <algorithm>
#include <array>

#include "compress/compression_method.h"

namespace ringdist {

// To add one: a file that defines x_treatment(), and its row below.
CompressionMethodRow low_rank_method();
CompressionMethodRow codec_method();

std::span<const CompressionMethodRow> compression_methods() {
  static const std::array rows{low_rank_method(), codec_method()};
  return rows;
}

Result<CompressionMethodPtr> make_compression_method(std::string_view argument,
                                                     const std::string& spec, int size,
                                                     std::optional<bool> feedback) {
  const auto row = std::ranges::find_if(
      compression_methods(), [&](const CompressionMethodRow& one) { return one.accepts(spec); });
  return row->make(argument, spec, size, feedback);
}

}  // namespace ringdist
