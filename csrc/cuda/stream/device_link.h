// Interface that moves messages between the ranks of a group, from device to device, on a stream.
// One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "base/error.h"
#include "cuda/api/cuda_api.h"

namespace ringdist::gpu {

// A part of a message with variable length. Its first 4 bytes are the length of the rest, little
// endian. Both ranks reserve `room` bytes, but unused room need not be sent.
struct VariablePart {
  size_t at;    // offset in the message, in bytes
  size_t room;  // reserved bytes, at least 4
};

// A message, or memory for one.
struct DeviceBytes {
  std::byte* data = nullptr;  // on the device; null while only the layout is set
  size_t size = 0;
  std::vector<VariablePart> varying = {};  // in ascending order
};

// Exchanges messages of one op. Implemented by NcclLink, HostLink and MailboxLink.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  // begin() and end() enclose the messages of one exchange, which move concurrently. The stream
  // continues when all have moved. After begin() has succeeded, the caller calls end() even if a
  // message was refused.
  //
  // Messages between an ordered pair of ranks match in the order of the calls. Sender and receiver
  // pass the same size and the same variable parts. No message has 0 bytes.
  //
  // An implementation may enqueue the messages as late as in end(). Their memory must be valid
  // until the stream has passed the exchange.
  virtual Error begin() = 0;
  virtual Error send(int peer, const DeviceBytes& message, Stream stream) = 0;
  virtual Error receive(int peer, const DeviceBytes& message, Stream stream) = 0;
  virtual Error end() = 0;
};

}  // namespace ringdist::gpu
