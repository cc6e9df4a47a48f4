// Additions to the plan of a compressed op: checks of its codec map, shards cut by encoded bytes,
// and the length of segments. All functions are pure, so ranks get equal results for equal
// requests. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/op_spec.h"
#include "plan/plan.h"

namespace ringdist {

// Checks a request with a codec map, for a group of `size` ranks. It returns kNotSupported or
// kInvalidArgument for a collective, dtype or reduce op that cannot be compressed. It returns
// kInvalidArgument for a codec that does not support the dtype, and for a residual with a codec
// that must not have one. Parts that do not cover the buffer fail a check.
Error check_codec_map(const OpSpec& request, int size);

// Returns the loss of the codec in the map that loses most.
CompressionLoss loss_of(const CodecMap& map);

// Returns the bounds of `shards` shards of an allreduce. Their encoded bytes are as equal as block
// boundaries allow, by Codec::bits() of contributions and results together. If the codecs are
// lossless, returns the shards of an uncompressed op, which give the same bits as that op if the
// algorithm is the same.
std::vector<int64_t> compressed_shards(const CodecMap& map, int shards);

// Returns a hash of the codec map and the shards, which must be equal on all ranks.
// Plan::compression_hash holds it.
uint64_t compression_hash(const OpSpec& request, int shards);

// Properties of group and algorithm that determine the ranges of a compressed op.
struct CompressedRanges {
  int size = 1;
  int shards = 1;                        // number of shards of an allreduce
  bool uncompressed_intra_host = false;  // messages inside a host are not encoded
};

// Returns the number of elements of a segment. Segments are so long that headers do not matter, and
// so short that encoding overlaps with sending. No message is longer than `segment_bytes`. Returns
// an error (kInvalidArgument) if not even one element fits.
Result<int64_t> compressed_segment_count(const OpSpec& request, const CompressedRanges& ranges,
                                         int64_t segment_bytes);

}  // namespace ringdist
