#include "compress/compression_method.h"

namespace ringdist {

void BucketPlan::add_part(const ParameterSlice& slice, const CodecPair& codecs) {
  if (!pieces.empty() && pieces.back().end() == slice.offset)
    pieces.back().count += slice.count;
  else
    pieces.push_back({slice.offset, slice.count, 0, nullptr});
  auto& parts = blocks->parts;
  coded |= !codecs.plain();
  // Values that travel as they are need no blocks of their own.
  if (codecs.plain() && !parts.empty() && parts.back().codecs.plain()) {
    parts.back().count += slice.count;
    return;
  }
  parts.push_back({blocks->count(), slice.count, codecs});
  if (codecs.plain()) return;
  parts.back().residual = slice.residual;
  parts.back().next = slice.next;
}

}  // namespace ringdist
