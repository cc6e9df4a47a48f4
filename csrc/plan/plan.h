// Makes the choices that must be equal on all ranks of an op: algorithm and segments. It is pure:
// the same request gives the same plan on every rank, because a request has no local measurements
// and no rank number. Sends and receives are planned elsewhere (planner.h).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "algorithm/schedule.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/network_costs.h"

namespace ringdist {

// Loss of the codecs on an op's edges, for a value that is encoded again at every hop. make_plan()
// sees this instead of the codecs.
enum class CompressionLoss : uint8_t {
  kUncompressed,  // no codecs
  kNothing,       // lossless codecs, so the plan is that of an uncompressed op if possible
  kElements,      // codecs that round each element separately, like half precision
  kBlocks,        // codecs with a scale per block; the plan encodes values at most twice
};

// Arguments of make_plan(). `count`, `parts` and `topology` have the meaning that they have in
// Shape.
struct PlanRequest {
  Collective kind = Collective::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kNone;  // read if the collective reduces
  int64_t count = 0;                     // elements
  // The output_parts of an allgather, or the input_parts of a reduce-scatter. Parts of an alltoall
  // are left out, because its ranks have different ones.
  std::span<const int64_t> parts;
  int root = 0;  // read for broadcast, reduce, gather and scatter
  int size = 1;  // ranks
  Topology topology = {};
  NetworkCosts costs = GroupCosts().constants;
  std::string_view forced_algorithm;  // name of an algorithm to use where it can, or ""
  bool layout_deterministic = false;  // an element's bits must not depend on its position
  int64_t segment_bytes = 0;          // maximum size of a message
  CompressionLoss compression_loss = CompressionLoss::kUncompressed;
};

// Chosen algorithm and segments of an op.
struct Plan {
  const Algorithm* algorithm = nullptr;  // a row of algorithms(); never freed
  // Elements of every segment except the last of a range. make_plan() leaves 1 for compressed ops;
  // Planner, which has the codec map, replaces it.
  int64_t segment_count = 1;
  uint64_t compression_hash = 0;  // 0 if the op is uncompressed
  std::string_view why = "";      // reason for the algorithm, for people; static text

  uint64_t hash() const;  // equal on all ranks (and builds) for equal plans
};

// Returns the reason, for people, for which the algorithm must not run such an op although it has
// the collective. It holds even for a forced algorithm. Returns "" if there is none. The text is
// static and fits behind the algorithm's name.
std::string_view refusal(const Algorithm& algorithm, const PlanRequest& request);

// Returns the predicted duration that the choice compares (algorithm/cost.h). Codecs are ignored.
// For an alltoall the choice compares durations without bytes instead, because its ranks may have
// different sizes.
Duration cost_of(const Algorithm& algorithm, const PlanRequest& request);

// Plans an op. A forced algorithm that does not have the collective, or must not run the op, is
// passed over. Errors (kInvalidArgument) are an unknown algorithm, one that layout_deterministic
// excludes, a segment size below one element, and layout_deterministic with codecs.
Result<Plan> make_plan(const PlanRequest& request);

}  // namespace ringdist
