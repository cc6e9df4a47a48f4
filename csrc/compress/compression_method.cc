#include "compress/compression_method.h"

#include <algorithm>
#include <array>

namespace ringdist {

void BucketPlan::add_part(const ParameterSlice& slice, const CodecPair& codecs) {
  if (!pieces.empty() && pieces.back().end() == slice.offset)
    pieces.back().count += slice.count;
  else
    pieces.push_back({slice.offset, slice.count, 0, nullptr});
  auto& parts = codec_map->parts;
  coded |= !codecs.plain();
  // Neighbouring uncompressed values need no separate blocks, because they have no scales.
  if (codecs.plain() && !parts.empty() && parts.back().codecs.plain()) {
    parts.back().count += slice.count;
    return;
  }
  parts.push_back({codec_map->count(), slice.count, codecs});
  if (codecs.plain()) return;
  parts.back().residual = slice.residual;
  parts.back().next = slice.next;
}

// To add a kind, write a file that defines its row function, and list the function below.
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
