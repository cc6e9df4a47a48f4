// What a compressed op adds to its plan: checks of its block map, shards cut by encoded bytes, and
// the length of segments. Pure: equal on all ranks for equal requests.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/op_spec.h"
#include "plan/plan.h"

namespace ringdist {

// Errors (kInvalidArgument, kNotSupported): a collective, dtype or reduce op that cannot be
// compressed, parts that do not cover the buffer, a codec that does not know the dtype, a residual
// with a codec that may not have one.
Error check_codec_map(const OpSpec& request, int size);

// The least gentle of the map's codecs decides.
CompressionLoss loss_of(const CodecMap& map);

// So many shards of an allreduce, as near to equal encoded bytes as block boundaries allow. If
// nothing is lost, those of an uncompressed op: with its algorithm, that gives its very bits.
std::vector<int64_t> compressed_shards(const CodecMap& map, int shards);

// Of the block map and the shards: what all ranks must have alike.
uint64_t compression_hash(const OpSpec& request, int shards);

struct CompressedRanges {
  int size = 1;
  int shards = 1;                        // of an allreduce
  bool uncompressed_intra_host = false;  // what stays inside a host is not encoded
};

// Elements of a segment: long enough that headers do not count, short enough to overlap encoding
// with the wire, and no message above `segment_bytes`. Error (kInvalidArgument) if nothing fits.
Result<int64_t> compressed_segment_count(const OpSpec& request, const CompressedRanges& ranges,
                                         int64_t segment_bytes);

}  // namespace ringdist
