// What an op does to a segment: all of it that is not messages. One per op on one rank; steps and
// segments are those of the op's compiled schedule.
//
// Lives on a lane, as the Run that owns it.
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

class Arithmetic {
 public:
  virtual ~Arithmetic() = default;

  // The bytes of a segment's message; of a compressed op, the most.
  virtual size_t message_bytes(int step, int64_t segment) const = 0;
  // A message of so many bytes can be that segment's.
  virtual bool accepts(int step, int64_t segment, size_t bytes) const = 0;
  // Of message_bytes() over the segments of the step, the greatest and the mean.
  virtual size_t most_bytes(int step) = 0;
  virtual size_t mean_bytes(int step) = 0;

  // Of a compressed op's step that sends own values: writes them encoded where they leave from, and
  // returns the bytes used.
  virtual size_t encode(int step, int64_t segment, Bytes out) = 0;
  // What the step sends as it lies in the op's memory. `held` keeps alive what is not the op's
  // tensors: a copy where they lie in pieces, scratch. Not of a compressed op.
  virtual ConstBytes view(int step, int64_t segment, PooledBuffer& held) = 0;

  // A step has something to do to a segment of its own. A reduce gets one entry of `arrived` for
  // each receiving source, a receive and a relay one. What a later send is to take, they leave in
  // `held`. Errors: bytes that cannot be decoded.
  virtual Error reduce(int step, int64_t segment, std::span<const ConstBytes> arrived,
                       PooledBuffer& held) = 0;
  // The same, and the sum to `twin` as well. Not of a compressed op.
  virtual void reduce_twice(int step, int64_t segment, std::span<const ConstBytes> arrived,
                            Bytes twin) = 0;
  virtual Error place(int step, int64_t segment, ConstBytes arrived, PooledBuffer& held) = 0;
  virtual Error copy(int step, int64_t segment, PooledBuffer& held) = 0;
};

struct ArithmeticMemory {
  std::pmr::memory_resource& objects;  // the lane's: for itself
  const std::shared_ptr<ScratchPool>& scratch;
};

// Of an op whose edges have no codecs.
// `stores`: of what is placed in the output.
Pooled<Arithmetic> plain_arithmetic(const Op& op, int size, StoreMode stores,
                                    const ArithmeticMemory& memory);
// Of one with a block map: see codec/codec_map.h and docs/compression.md. Reads this rank's values
// once: a part that is all zero keeps its residual.
Pooled<Arithmetic> compressed_arithmetic(const Op& op, int rank, int size,
                                         const ArithmeticMemory& memory);

}  // namespace ringdist
