// Pool of buffers for outgoing messages that are written before they are sent; transports implement
// reserve() with it. Not thread-safe: the lane's progress lock protects it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "transport/transport.h"

namespace ringdist {

// Has a fixed maximum of buffers of one size, each allocated on first use. A buffer is free again
// when all its holders have released it, so that one reservation can be sent to several peers.
class StagingPool {
 public:
  StagingPool(size_t buffer_bytes, size_t max_buffers)
      : buffer_bytes_(buffer_bytes), max_buffers_(max_buffers) {}

  // Returns a free buffer, cut to `bytes`, with the caller as its holder. Returns nothing if all
  // buffers are in use. `bytes` above the buffer size fails a check.
  std::optional<Bytes> take(size_t bytes);
  // Raises the maximum by one buffer.
  void add_buffer() { ++max_buffers_; }
  // Adds a holder to a buffer that take() returned. The caller of take() is a holder from the
  // start.
  void hold(const std::byte* buffer);
  // Removes a holder.
  void release(const std::byte* buffer);

 private:
  struct Buffer {
    std::unique_ptr<std::byte[]> memory;
    int holders = 0;
  };
  Buffer& find(const std::byte* memory);

  size_t buffer_bytes_;
  size_t max_buffers_;
  std::vector<Buffer> all_;  // few, so find() may be linear
};

}  // namespace ringdist
