// The blocks of a peer's shared tensors that it lets this process read, as the receiving half of
// its link hears of them. With the lane's token held.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/buffers.h"
#include "os/memfd.h"
#include "transport/shm/loan_note.h"

namespace ringdist::shm {

class Borrowed {
 public:
  // Hears what the peer says, and answers. Errors: kPeerLost where the connection has ended;
  // kProtocol.
  Error on_event(const Fd& socket);
  // What lies at a place in a loan; nothing if it is none of the peer's blocks.
  std::optional<ConstBytes> find(uint64_t place, size_t bytes) const;

 private:
  Error on_note(const Fd& socket, const NoteHeard& heard);
  bool take(const NoteHeard& heard);

  std::map<uint32_t, Mapping> blocks_;
};

}  // namespace ringdist::shm
