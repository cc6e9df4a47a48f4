// By this ranks notice that they call different things. It goes over the wire as it lies here
// (little-endian): a change of it is one of kWireVersion (engine/op/message.h).
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "algorithm/schedule.h"
#include "base/dtype.h"

namespace ringdist {

// Group part: kind, dtype, reduce op, root, plan - equal on all ranks. Edge part: count - what the
// receiver of an edge compares with what it expects. Where all edges of an op are of one size that
// all ranks know, the count is the op's; else it is kPerEdge, and each edge's on its messages.
struct Fingerprint {
  Collective kind;
  DType dtype;
  ReduceOp reduce_op;
  uint8_t of_edge = 0;  // the count is the edge's
  int32_t root;
  uint64_t plan;  // plan_part()
  int64_t count;

  static constexpr int64_t kPerEdge = -1;
  // The root of an all_reduce that CompressState.state_dict() calls, for messages.
  static constexpr int32_t kOfState = -2;

  // All but eight bits of the plan's hash; those say which codec an op has, for messages, and the
  // highest of them whether it runs on devices.
  static constexpr uint64_t kOnDevice = 0x80;
  static uint64_t plan_part(uint64_t hash, uint8_t codec_id) { return hash << 8 | codec_id; }
  uint8_t codec_id() const { return static_cast<uint8_t>(plan & ~kOnDevice); }
  bool on_device() const { return (plan & kOnDevice) != 0; }

  bool operator==(const Fingerprint&) const = default;
  Fingerprint group_part() const {
    Fingerprint out = *this;
    if (of_edge != 0) out.count = kPerEdge;
    out.of_edge = 0;
    return out;
  }
  // "all_reduce(float32, 1000 elements, SUM, codec int4)"; safe for any bytes from the wire.
  std::string describe() const;
};
static_assert(std::is_trivially_copyable_v<Fingerprint> && sizeof(Fingerprint) == 24);

}  // namespace ringdist
