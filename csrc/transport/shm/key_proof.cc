#include "transport/shm/key_proof.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "os/socket.h"

namespace ringdist::shm {

KeyProof KeyProof::dial(const TlsKey* key, ContextId me, ContextId peer) {
  return {key ? key->dial(me, peer) : nullptr, /*dials=*/true};
}

KeyProof KeyProof::accept(const TlsKey* key, ContextId me) {
  return {key ? key->accept(me) : nullptr, /*dials=*/false};
}

Error KeyProof::failed(int errno_value) const {
  const std::string why = tls_->failure();
  if (errno_value == EPROTO)
    return Error(ErrorKind::kProtocol, "the peer has not shown that it has the key: TLS: " + why);
  return Error(ErrorKind::kPeerLost,
               "the peer closed its connection before it had shown that it has the key");
}

Result<bool> KeyProof::advance(const Fd& socket) {
  if (!tls_) return true;
  const int problem = tls_->handshake(socket.get());
  if (problem == EAGAIN) return false;
  if (problem != 0) return failed(problem);
  std::byte end{};
  const iovec record{&end, sizeof end};
  const ssize_t n = dials_ ? tls_->read(socket.get(), Bytes(&end, sizeof end))
                           : tls_->write(socket.get(), std::span(&record, 1));
  if (dials_ && n < 0 && passes(errno)) return false;
  if (n != sizeof end) return failed(n < 0 ? errno : 0);
  if (tls_->has_output())
    return Error(ErrorKind::kSystem, "the socket of a connection inside the host has no room");
  peer_ = tls_->peer();
  if (const std::string name = tls_->peer_name(); !name.empty()) peer_name_ = name;
  tls_.reset();
  return true;
}

}  // namespace ringdist::shm
