// Moves bytes between the ranks of a group, from device to device, on a stream.
#pragma once

#include <cstddef>
#include <vector>

#include "base/error.h"
#include "cuda/api/cuda_api.h"

namespace ringdist::gpu {

// An encoding in a message, of a length that its first 4 bytes say, without them, little endian. It
// may take all of its room; what is left of that need not travel.
struct VariablePart {
  size_t at;    // bytes
  size_t room;  // at least 4
};

// A message, or the place for one.
struct DeviceBytes {
  std::byte* data = nullptr;
  size_t size = 0;
  std::vector<VariablePart> varying = {};  // in their order
};

class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  // What is named between the two moves at once; the stream goes on when all of it has. Messages of
  // an ordered pair of ranks meet in the order of these calls, and have the same size, and what
  // varies at the same places. None is of 0 bytes.
  virtual Error begin() = 0;
  virtual Error send(int peer, const DeviceBytes& message, Stream stream) = 0;
  virtual Error receive(int peer, const DeviceBytes& message, Stream stream) = 0;
  virtual Error end() = 0;
};

}  // namespace ringdist::gpu
