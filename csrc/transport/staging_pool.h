// Memory for outgoing messages that are written before they are sent: what reserve() hands out.
// A fixed number of buffers, made on first use; when all are out, reserve() says "nothing yet". One
// comes back when the last who holds it has released it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "transport/transport.h"

namespace ringdist {

class StagingPool {
 public:
  StagingPool(size_t buffer_bytes, size_t max_buffers)
      : buffer_bytes_(buffer_bytes), max_buffers_(max_buffers) {}

  std::optional<Bytes> take(size_t bytes);
  // One more holds it. Who took it does from the start.
  void hold(const std::byte* buffer);
  void release(const std::byte* buffer);

 private:
  struct Buffer {
    std::unique_ptr<std::byte[]> memory;
    int holders = 0;
  };
  Buffer& find(const std::byte* memory);

  size_t buffer_bytes_;
  size_t max_buffers_;
  std::vector<Buffer> all_;  // a few
};

}  // namespace ringdist
