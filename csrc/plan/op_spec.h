// Specification of an op: everything that its plan depends on, without the memory of tensors. Plain
// values; any thread may read one that is not being changed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "algorithm/schedule.h"
#include "base/dtype.h"
#include "codec/codec_map.h"

namespace ringdist {

// Peer, tag and tag space of a send or receive. Sends are matched with receives by source, tag and
// tag space, in the order of calls on both sides. They have no op number.
struct Envelope {
  static constexpr int kAnySource = -1;
  // Tag space, so that sends only meet receives of the same origin. The origins are callers with
  // tensors in host memory, callers with device tensors that travel by way of the host, schedules
  // on streams, and messages between device runners.
  enum class TagSpace : uint8_t { kCaller, kDeviceCaller, kSchedule, kRunner };
  int peer = kAnySource;  // the other rank; kAnySource is for receives only
  int32_t tag = 0;        // not negative
  bool sends = false;     // otherwise it receives
  TagSpace origin = TagSpace::kCaller;
};

// Arguments of an op. `count`, `input_parts` and `output_parts` have the meaning that they have in
// Shape.
struct OpSpec {
  Collective kind = Collective::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kNone;
  int root = 0;
  int64_t count = 0;  // elements
  std::vector<int64_t> input_parts;
  std::vector<int64_t> output_parts;
  std::optional<Envelope> envelope;  // set for kPointToPoint only
  // Codec map, or null for an uncompressed op. It covers an allreduce's output, a reduce-scatter's
  // input (the parts of all ranks) or an allgather's input. It needs float32, bfloat16 or float16,
  // and SUM or AVG if the op reduces.
  std::shared_ptr<const CodecMap> codec_map;
  bool of_state = false;   // called by CompressState.state_dict(), which error messages mention
  bool on_device = false;  // its tensors are on a device, and a device runner runs it
};

}  // namespace ringdist
