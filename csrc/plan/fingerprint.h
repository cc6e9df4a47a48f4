// Fingerprint of a call. Ranks compare fingerprints to detect mismatched calls. It is sent in its
// memory layout (little-endian), so a change of it needs a new kWireVersion (engine/op/message.h).
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "algorithm/schedule.h"
#include "base/dtype.h"

namespace ringdist {

// The fingerprint has a group part, which is equal on all ranks: kind, dtype, reduce op, root and
// plan. The edge part is the count, which the receiver of an edge compares with the expected count.
// If all ranks can compute the sizes of all edges, the count is that of the op. Otherwise it is
// kPerEdge, and the messages of each edge have the count of the edge.
struct Fingerprint {
  Collective kind;
  DType dtype;
  ReduceOp reduce_op;
  uint8_t of_edge = 0;  // 1 if the count is that of the edge
  int32_t root;
  uint64_t plan;  // plan_part()
  int64_t count;

  static constexpr int64_t kPerEdge = -1;
  // Value of `root` for an all_reduce of CompressState.state_dict(). Error messages mention it.
  static constexpr int32_t kOfState = -2;

  // The plan's hash without its upper eight bits. The freed low bits have the codec id, for error
  // messages, and the highest of them (kOnDevice) is set if the op runs on devices.
  static constexpr uint64_t kOnDevice = 0x80;
  static uint64_t plan_part(uint64_t hash, uint8_t codec_id) { return hash << 8 | codec_id; }
  uint8_t codec_id() const { return static_cast<uint8_t>(plan & ~kOnDevice); }
  bool on_device() const { return (plan & kOnDevice) != 0; }

  bool operator==(const Fingerprint&) const = default;
  // Returns the fingerprint without the edge part. Ranks that call the same op have equal group
  // parts.
  Fingerprint group_part() const {
    Fingerprint out = *this;
    if (of_edge != 0) out.count = kPerEdge;
    out.of_edge = 0;
    return out;
  }
  // Returns a text such as "all_reduce(float32, 1000 elements, SUM, codec int4)". Any bytes from
  // the wire are safe.
  std::string describe() const;
};
static_assert(std::is_trivially_copyable_v<Fingerprint> && sizeof(Fingerprint) == 24);

}  // namespace ringdist
