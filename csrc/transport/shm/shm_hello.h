// How two Contexts of a host connect: who wants to send dials the other's abstract socket and says
// hello, with its segment and its doorbell; the other maps the segment and answers with its own.
// That is all the connection is for: both close it. Who has shared tensors to lend over that link
// dials again, and says so in a hello that needs no answer (export_message.h has what follows).
#pragma once

#include <cstdint>
#include <optional>

#include "os/memfd.h"
#include "os/socket.h"
#include "transport/transport.h"

namespace ringdist::shm {

// The same for both directions, little-endian.
struct ShmHello {
  uint64_t magic;
  uint32_t layout_version;
  uint32_t index;  // the dialer's ring; in the answer the counter of what was consumed
  ContextId from;
  ContextId to;
};

// What a hello brings.
struct ReceivedHello {
  ShmHello hello;
  bool for_exports = false;  // `index` is the ring of a link that is there, and there is no more
  Mapping segment = {};
  Mapping chunks = {};  // where the hello names a ring; it may grow
  Fd write_end = {};    // of the other's doorbell
};

// As connect_unix(); refuses another user's socket.
ConnectAttempt connect_to_own_user(const std::string& address);

// `later` as of send_with_fds().
Error send_hello(const Fd& socket, ContextId from, ContextId to, uint32_t index, const Fd& segment,
                 const Fd& write_end, bool* later = nullptr);
// `index` is that of the link whose messages will name them.
Error send_export_hello(const Fd& socket, ContextId from, ContextId to, uint32_t index);
// In its place, where there is no room for the link: the dialer is told why nobody answers.
void refuse_hello(const Fd& socket, ContextId from);
// Maps the Front of the other's segment and, for one who `reads`, the ring that the hello names and
// the beginning of the chunks. Nothing if it has not come yet. Errors: kPeerLost
// where the connection has ended; kProtocol where it is no hello of this version to `me`; kSystem
// where this process, or the other, has no descriptor or address space left for it.
Result<std::optional<ReceivedHello>> receive_hello(const Fd& socket, ContextId me, bool reads);

}  // namespace ringdist::shm
