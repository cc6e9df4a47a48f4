// The handshake of two Contexts of a host. The sender dials the other's abstract socket and sends a
// hello with its segment and its doorbell. The other maps the segment. Once it has the address of
// the sender, it compares the pid and answers with its own.
// Both then close the connection.
//
// To export shared tensors over that channel, the sender dials again. Its export hello needs no
// answer; block_exports.h has the messages that follow.
//
// With a key of the job, both kinds of connections begin with a handshake of TLS (KeyProof). All
// functions are thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "os/memfd.h"
#include "os/socket.h"
#include "transport/transport.h"

namespace ringdist::shm {

// The same for both directions. Little-endian.
struct ShmHello {
  uint64_t magic;
  uint32_t layout_version;
  uint32_t index;  // the dialer's ring; in the answer, the counter of consumed messages
  ContextId from;
  ContextId to;
};

// A hello that was received and checked, with the mapped memory that it brings.
struct ReceivedHello {
  ShmHello hello;
  bool for_exports = false;  // hello.index is the ring of an existing channel; no memory comes
  Mapping segment = {};
  Mapping chunks = {};  // set if the receiver reads a ring; may grow
  Fd write_end = {};    // write end of the other's doorbell
};

// Connects as connect_unix() does, but refuses a socket of another user.
ConnectAttempt connect_to_own_user(const std::string& address);

// Sends a hello with the descriptors of segment and doorbell. `later` is as in send_with_fds():
// true if the same call may succeed after a pause.
Error send_hello(const Fd& socket, ContextId from, ContextId to, uint32_t index, const Fd& segment,
                 const Fd& write_end, bool* later = nullptr);
// Sends an export hello. `index` is the ring of the channel that will carry the messages.
Error send_export_hello(const Fd& socket, ContextId from, ContextId to, uint32_t index);
// Answers a hello if this process has no room for the channel, so that the dialer can report the
// cause.
void refuse_hello(const Fd& socket, ContextId from);
// Receives a hello and maps the other's ControlBlock. With `reads`, also maps the rings up to the
// one that the hello names and the beginning of the chunks. Returns nothing if no hello has come
// yet. An export hello maps nothing.
//
// Returns kPeerLost if the connection has ended. Returns kProtocol if it is not a hello of this
// version to `me`. Returns kSystem if this process or the other has no descriptor or address space
// left.
Result<std::optional<ReceivedHello>> receive_hello(const Fd& socket, ContextId me, bool reads);

}  // namespace ringdist::shm
