// Which parts of a compressed op's block map a step's elements are of, and what follows from that
// for every executor: codecs, seeds, what is owed. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithm/schedule.h"
#include "codec/codec_map.h"
#include "plan/compiled_schedule.h"
#include "plan/op_spec.h"

namespace ringdist {

// A run of elements that one part covers: `index` in the block map, `at` after the first element
// that was asked for.
struct CodecMapPiece {
  const CodecMapPart* part;
  int64_t index;
  int64_t at;
  int64_t count;

  // Equal on all ranks for the same elements of the same op, so that a run repeats.
  CodecSeed seed(uint64_t op_number, int rank) const;
  // Of a part with error feedback: its residual, and where that goes.
  const float* residual_values() const { return part->residual + (index - part->offset); }
  float* next_residual() const {
    return (part->next != nullptr ? part->next : part->residual) + (index - part->offset);
  }
};

// Those of `count` elements from `begin` of the map on, in order; none is empty.
std::vector<CodecMapPiece> pieces_of(const CodecMap& map, int64_t begin, int64_t count);

// Where the range of a step begins in the op's block map. That covers an allreduce's output, a
// reduce-scatter's input, one rank's part of an allgather.
int64_t index_in_map(const CompiledSchedule& schedule, const OpSpec& request, int step);

// What elements travel as: to sums of the own host (EdgeKind::kInside) as they are, so that only
// what a wire carries loses anything.
const Codec& codec_of(EdgeKind edge_kind, const CodecPair& codecs);

// Whether a reduce adds a part's own values as they are, not as others would see them.
bool adds_own_raw(const Step& step, const CodecMapPart& part, int size);

}  // namespace ringdist
