// The computation of an op: Arithmetic reduces, copies, encodes and decodes the segments of one op
// on one rank. It sends and receives nothing; OpExecution and SegmentSender move the messages.
//
// Steps and segments are indices into the op's compiled schedule (CompiledSchedule).
// PlainArithmetic and CompressedArithmetic implement the interface.
//
// Threads: the caller holds the lane's progress lock. Lifetime: ExecutionState owns the object, and
// the op must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>

#include "base/error.h"
#include "base/free_list_resource.h"
#include "base/scratch_pool.h"
#include "engine/op/op.h"
#include "kernel/copy.h"

namespace ringdist {

// Interface of the computation on segments. One object serves all steps of one op.
class Arithmetic {
 public:
  virtual ~Arithmetic() = default;

  // Returns the payload size in bytes of the segment's message. For a compressed op this is an
  // upper bound, because the encoded size depends on the values.
  virtual size_t message_bytes(int step, int64_t segment) const = 0;
  // Returns true if a message with a payload of `bytes` bytes can be that segment.
  virtual bool accepts(int step, int64_t segment, size_t bytes) const = 0;
  // Return the largest and the mean message_bytes() over all segments of the step.
  virtual size_t most_bytes(int step) = 0;
  virtual size_t mean_bytes(int step) = 0;

  // Encodes this rank's own values of the segment into `out`, which lies in the memory that the
  // message is sent from. Returns the number of bytes used. Only for a send step of a compressed op
  // that sends values which no earlier step has encoded.
  virtual size_t encode(int step, int64_t segment, Bytes out) = 0;
  // Returns the bytes that the step sends for the segment, without a copy where possible. If they
  // do not lie in the op's tensors, `held` keeps them alive: they are scratch, or a copy of values
  // that lie in pieces. Not for a compressed op.
  virtual ConstBytes view(int step, int64_t segment, PooledBuffer& held) = 0;

  // reduce(), place() and copy() execute a segment of a local step. `arrived` has one payload for
  // each source of a reduce that is a peer, in the order of the step's incoming edges; a receive or
  // relay gets one payload. If a later send needs encoded bytes, they are left in `held`. The
  // returned Error means that a payload could not be decoded.
  //
  // Sums the segment over all sources of a reduce step and writes the result into the step's range.
  virtual Error reduce(int step, int64_t segment, std::span<const ConstBytes> arrived,
                       PooledBuffer& held) = 0;
  // Does the same and also writes the sum to `twin`, so that it can be sent from there. `twin` has
  // the size of the segment. Not for a compressed op.
  virtual void reduce_twice(int step, int64_t segment, std::span<const ConstBytes> arrived,
                            Bytes twin) = 0;
  // Stores the payload of a receive or relay step in the step's range.
  virtual Error place(int step, int64_t segment, ConstBytes arrived, PooledBuffer& held) = 0;
  // Executes a segment of a local copy step.
  virtual Error copy(int step, int64_t segment, PooledBuffer& held) = 0;
};

// Allocators that an Arithmetic uses.
struct ArithmeticMemory {
  std::pmr::memory_resource& objects;           // memory of the lane, for the object and its lists
  const std::shared_ptr<ScratchPool>& scratch;  // large temporary buffers
};

// Makes the Arithmetic of an op without compression. `size` is the number of ranks; `stores`
// selects how values that are copied or received are written to memory.
Pooled<Arithmetic> plain_arithmetic(const Op& op, int size, StoreMode stores,
                                    const ArithmeticMemory& memory);
// Makes the Arithmetic of an op with a codec map; see codec/codec_map.h and
// docs/explanation/compression.md. It reads this rank's values once, to find parts that are all
// zero: such a part sends zeros and keeps its residual.
Pooled<Arithmetic> compressed_arithmetic(const Op& op, int rank, int size,
                                         const ArithmeticMemory& memory);

}  // namespace ringdist
