// What a caller asks of a group: all that its plan depends on, and no memory but that of residuals.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "algorithm/schedule.h"
#include "base/dtype.h"
#include "codec/codec_map.h"

namespace ringdist {

// The other end of a send or a receive. Sends meet receives by (source, tag), in the order of the
// calls on both sides; they take no op number.
struct Envelope {
  static constexpr int kAnySource = -1;
  // Whose it is: it meets only its like. A caller's, of tensors of the host or, by way of that, of
  // a device; of a schedule on a stream; of what runners tell each other.
  enum class TagSpace : uint8_t { kCaller, kDeviceCaller, kSchedule, kRunner };
  int peer = kAnySource;
  int32_t tag = 0;
  bool sends = false;
  TagSpace origin = TagSpace::kCaller;
};

struct OpSpec {
  Collective kind = Collective::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kNone;
  int root = 0;
  int64_t count = 0;                  // elements, as in Shape
  std::vector<int64_t> input_parts;   // as in Shape
  std::vector<int64_t> output_parts;  // as in Shape
  std::optional<Envelope> envelope;   // of kPointToPoint
  // Null: uncompressed. Covers an allreduce's output, a reduce-scatter's input (all ranks' parts),
  // an allgather's input. Needs float32, bfloat16 or float16, and SUM or AVG where it reduces.
  std::shared_ptr<const CodecMap> codec_map;
  bool of_state = false;   // messages call it CompressState.state_dict()'s
  bool on_device = false;  // its tensors are there, and so is what runs it
};

}  // namespace ringdist
