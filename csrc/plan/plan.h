// Chooses what all ranks of an op must choose alike. Pure: the same request gives the same plan on
// every rank, because nothing in a request is measured and it does not say which rank asks. It has
// no plan for sends and receives.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "algorithm/schedule.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/network_costs.h"

namespace ringdist {

// What the codecs on an op's edges lose of a value that is encoded once more at every hop. The
// planner knows no codec.
enum class CompressionLoss : uint8_t {
  kUncompressed,  // no codecs
  kNothing,       // plan as without
  kElements,      // they round each element by itself, as half precision does
  kBlocks,        // the elements of a block share what is lost: two encodings are enough
};

struct PlanRequest {
  Collective kind = Collective::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kNone;  // read for allreduce, reduce-scatter and reduce
  int64_t count = 0;                     // elements, as in Shape
  // An allgather's output_parts, a reduce-scatter's input_parts; as in Shape. Not an alltoall's:
  // its ranks do not know them alike.
  std::span<const int64_t> parts;
  int root = 0;  // read for broadcast, reduce, gather and scatter
  int size = 1;
  Topology topology = {};  // as in Shape
  NetworkCosts costs = GroupCosts().constants;
  std::string_view forced_algorithm;  // by name; "" for none. Applies to what it supports
  bool layout_deterministic = false;  // an element's bits must not depend on where it lies
  int64_t segment_bytes = 0;          // the most that a message may carry
  CompressionLoss compression_loss = CompressionLoss::kUncompressed;
};

struct Plan {
  const Algorithm* algorithm = nullptr;  // in algorithms(): lives as long as the process
  // Elements of every segment but a range's last; of a coded op 1 until the caller, who knows its
  // block map, has cut it.
  int64_t segment_count = 1;
  uint64_t compression_hash = 0;  // 0: not coded
  std::string_view why = "";      // that algorithm, for people; of static text

  uint64_t hash() const;  // equal on all ranks (and builds) for equal plans
};

// Why the algorithm may not be taken for such an op, though it has the collective, not even where
// it is forced; "" if it may. For people.
std::string_view refusal(const Algorithm& algorithm, const PlanRequest& request);

// What the choice compares: algorithm/cost.h, as if without codecs.
Duration cost_of(const Algorithm& algorithm, const PlanRequest& request);

// Errors (kInvalidArgument): an unknown algorithm, one that layout_deterministic rules out, a
// segment size that holds no element, layout_deterministic with codecs.
Result<Plan> make_plan(const PlanRequest& request);

}  // namespace ringdist
