// Moves bytes between the ranks of a group, from device to device, on a stream.
#pragma once

#include <cstddef>

#include "base/error.h"
#include "cuda/api/cuda_api.h"

namespace ringdist::gpu {

class Link {
 public:
  virtual ~Link() = default;

  // What is named between the two moves at once; the stream goes on when all of it has. Messages of
  // an ordered pair of ranks meet in the order of these calls. None is of 0 bytes.
  virtual Error begin() = 0;
  virtual Error send(int peer, const void* data, size_t bytes, Stream stream) = 0;
  virtual Error receive(int peer, void* data, size_t bytes, Stream stream) = 0;
  virtual Error end() = 0;
};

}  // namespace ringdist::gpu
