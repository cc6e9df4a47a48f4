// Interface to what an op does to memory between its exchanges. It enqueues work on the op's
// stream. It corresponds to engine/op/arithmetic.h on the host. There is one object per op and
// rank. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/error.h"
#include "cuda/stream/device_link.h"
#include "cuda/stream/stream_op.h"

namespace ringdist::gpu {

// Work of the steps of one op: copies, reductions, encoding and decoding.
class StreamArithmetic {
 public:
  virtual ~StreamArithmetic() = default;

  // Enqueues what must precede all steps.
  virtual Error begin() { return {}; }
  // Returns size and variable parts of the message in a slot of a step, which is an index into `in`
  // of its CompiledStep. `data` is not set.
  virtual DeviceBytes incoming(int step, int slot) const = 0;
  // Returns where a message may arrive directly, if the step would write the same bytes there.
  // Returns null otherwise.
  virtual std::byte* landing(int step) const = 0;

  // Enqueues the work of a step. `arrived` has the received messages by slot, and their memory
  // remains valid. Returns the message that the step sends, if it is a send or relay. Errors: those
  // of CudaApi.
  virtual Result<DeviceBytes> run(int step, std::span<const DeviceBytes> arrived) = 0;
};

// Returns the arithmetic of uncompressed ops. `op` must outlive it.
std::unique_ptr<StreamArithmetic> plain_stream_arithmetic(StreamOp& op);
// Returns the arithmetic of an op with a codec map. All its codecs must have kernels. `malformed`
// is pinned; kernels set it to 1 if they receive bytes that no encoder writes.
std::unique_ptr<StreamArithmetic> compressed_stream_arithmetic(StreamOp& op, int* malformed);

}  // namespace ringdist::gpu
