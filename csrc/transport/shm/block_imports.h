// The blocks of a peer's shared tensors that it lets this process read, as the receiving half of
// its link hears of them. With the lane's token held.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/buffers.h"
#include "os/memfd.h"
#include "transport/shm/export_message.h"

namespace ringdist::shm {

class BlockImports {
 public:
  // There is a new connection. What came over the former is kept for messages up to `last`, which
  // alone may name it.
  void begin(uint64_t last);
  // So many messages have been read.
  void read_until(uint64_t consumed);
  void clear();
  // Hears what the peer says, and answers. Errors: kPeerLost where the connection has ended;
  // kProtocol.
  Error on_event(const Fd& socket);
  // What lies at a place in a loan; nothing if it is none of the peer's blocks.
  std::optional<ConstBytes> find(uint64_t place, size_t bytes) const;

 private:
  Error on_message(const Fd& socket, const ReceivedExportMessage& heard);
  bool take(const ReceivedExportMessage& heard);

  std::map<uint32_t, Mapping> blocks_;
  std::map<uint32_t, Mapping> former_;  // of a connection that broke
  uint64_t former_until_ = 0;
};

}  // namespace ringdist::shm
