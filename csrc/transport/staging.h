// Memory for outgoing messages that are written before they are sent: what reserve() hands out.
// A fixed number of buffers, made on first use; when all are out, reserve() says "nothing yet".
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
  void give_back(Bytes buffer);
  // What a transport's commit() does that has nothing better than send(): to all, then back.
  void send(Transport& transport, Bytes buffer, size_t used, std::span<const Outgoing> to,
            SendDone done);
  size_t in_use() const { return all_.size() - free_.size(); }

 private:
  size_t buffer_bytes_;
  size_t max_buffers_;
  std::vector<std::unique_ptr<std::byte[]>> all_;
  std::vector<std::byte*> free_;
};

}  // namespace ringdist
