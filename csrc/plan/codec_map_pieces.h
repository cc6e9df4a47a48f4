// Finds the parts of a compressed op's codec map that a step's elements belong to. The parts
// determine codecs, seeds and residuals, equally on CPUs and devices. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithm/schedule.h"
#include "codec/codec_map.h"
#include "plan/compiled_schedule.h"
#include "plan/op_spec.h"

namespace ringdist {

// A contiguous range of elements within one part of the map. `index` is its position in the map,
// and `at` its position in the range that was passed to pieces_of(). `part` points into the map, so
// it is valid while the map lives unchanged.
struct CodecMapPiece {
  const CodecMapPart* part;
  int64_t index;
  int64_t at;
  int64_t count;

  // Returns a seed that depends only on the arguments and on `index`, so that equal jobs give equal
  // bits. Its shared half is equal on all ranks.
  CodecSeed seed(uint64_t op_number, int rank) const;
  // Return the old residual of the elements, and the memory for the new one. They need a part with
  // error feedback. The two are the same memory if the part has no `next`.
  const float* residual_values() const { return part->residual + (index - part->offset); }
  float* next_residual() const {
    return (part->next != nullptr ? part->next : part->residual) + (index - part->offset);
  }
};

// Returns the pieces of the `count` elements of the map from `begin` on, in order. None is empty,
// and their `at` and `count` cover the range without gaps.
std::vector<CodecMapPiece> pieces_of(const CodecMap& map, int64_t begin, int64_t count);

// Returns the index in the op's codec map at which the range of step number `step` begins. The map
// covers the output of an allreduce, the input of a reduce-scatter, and one rank's part of an
// allgather.
int64_t index_in_map(const CompiledSchedule& schedule, const OpSpec& request, int step);

// Returns the codec of an edge. Contributions to sums inside the host (EdgeKind::kIntraHost) stay
// uncompressed, so that only messages between hosts lose precision. The reference is valid as long
// as `codecs` holds its codecs.
const Codec& codec_of(EdgeKind edge_kind, const CodecPair& codecs);

// Returns true if a reduce adds this rank's own values of a part unchanged. Otherwise it adds them
// as the codec of contributions would reproduce them. `size` is the number of ranks.
bool adds_own_raw(const Step& step, const CodecMapPart& part, int size);

}  // namespace ringdist
