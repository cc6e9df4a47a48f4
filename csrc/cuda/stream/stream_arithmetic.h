// What an op does to memory between its exchanges, put on its stream: the twin of
// engine/op/arithmetic.h. One per op on one rank; one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/error.h"
#include "cuda/stream/device_link.h"
#include "cuda/stream/stream_op.h"

namespace ringdist::gpu {

class StreamArithmetic {
 public:
  virtual ~StreamArithmetic() = default;

  virtual Error begin() { return {}; }
  // What a message that comes in is like; where it is to be is not said.
  virtual DeviceBytes incoming(int step, int slot) const = 0;
  // Where they may come to, if their step is to write there what they are; else null.
  virtual std::byte* landing(int step) const = 0;

  // A step does its part: `arrived` holds what has come in by slot, each message in memory that
  // stays. Returns what the step's messages are, for a send or a relay.
  virtual Result<DeviceBytes> run(int step, std::span<const DeviceBytes> arrived) = 0;
};

// Values as they are.
std::unique_ptr<StreamArithmetic> plain_stream_arithmetic(StreamOp& op);
// Of an op with a block map, all of whose codecs have kernels. `malformed`, pinned: set to 1 by
// bytes that no encoder writes.
std::unique_ptr<StreamArithmetic> compressed_stream_arithmetic(StreamOp& op, int* malformed);

}  // namespace ringdist::gpu
