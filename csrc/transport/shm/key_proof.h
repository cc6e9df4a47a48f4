// Proof at the beginning of a connection of transport `shm` that both sides have the key of the
// job: a handshake of TLS. What follows is plain, because descriptors cannot be passed by TLS.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "os/fd.h"
#include "os/tls_key.h"
#include "transport/transport.h"

namespace ringdist::shm {

// One side of the proof. After its handshake the accepting side sends a record of one byte, for
// which the dialing side waits. So TLS cannot read ahead what the dialing side sends afterwards.
// Requires the lane's progress lock.
class KeyProof {
 public:
  // Makes a proof that is over, for a job without a key.
  KeyProof() = default;
  // With a null key, the same.
  static KeyProof dial(const TlsKey* key, ContextId me, ContextId peer);
  static KeyProof accept(const TlsKey* key, ContextId me);

  // Continues when the socket is readable, and once after the dial. Returns true when the proof is
  // over. Errors: kProtocol if the peer does not have the key or is another process, kPeerLost if
  // the connection ended, kSystem if the socket has no room.
  Result<bool> advance(const Fd& socket);
  bool is_over() const { return tls_ == nullptr; }
  // Returns the process at the other end; 0 before the proof is over, and without a key.
  ContextId peer() const { return peer_; }
  // Returns what it has proven, for a message.
  const std::string& peer_name() const { return peer_name_; }

 private:
  KeyProof(std::unique_ptr<TlsConnection> tls, bool dials) : tls_(std::move(tls)), dials_(dials) {}
  Error failed(int errno_value) const;

  std::unique_ptr<TlsConnection> tls_;
  bool dials_ = false;
  ContextId peer_ = 0;
  std::string peer_name_ = "the key";
};

}  // namespace ringdist::shm
