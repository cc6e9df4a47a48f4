// How this Context wakes its peers and sees that they are gone: one doorbell for each, whatever
// links there are to it and from it. With the lane's token held.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "os/doorbell.h"
#include "os/epoll.h"
#include "transport/transport.h"

namespace ringdist::shm {

class PeerDoorbell {
 public:
  explicit PeerDoorbell(Fd write_end) : ringer_(RemoteDoorbell(std::move(write_end))) {}

  void ring() const {
    if (ringer_) ringer_->ring();
  }
  // Its process has ended, or its transport has closed: nothing follows, and it reads nothing.
  bool closed() const { return !ringer_; }

 private:
  friend class PeerDoorbells;

  std::optional<RemoteDoorbell> ringer_;
};

class PeerDoorbells {
 public:
  // Their keys in the epoll set begin at `first_key`.
  PeerDoorbells(const Epoll& epoll, uint64_t first_key) : epoll_(epoll), next_key_(first_key) {}

  // The peer's, which came with a greeting; one that is known already stays. Error: kSystem.
  Result<std::shared_ptr<PeerDoorbell>> add(ContextId peer, Fd write_end);
  // Whose end that event is, if it is one; told once.
  std::optional<ContextId> on_event(uint64_t key);
  void close();

  // Why a link ends with its peer.
  static Error closed() { return Error(ErrorKind::kPeerLost, "the peer closed its connection"); }

 private:
  struct Known {
    ContextId peer;
    std::shared_ptr<PeerDoorbell> bell;
  };
  void forget(std::map<uint64_t, Known>::iterator known);

  const Epoll& epoll_;
  uint64_t next_key_;
  std::map<uint64_t, Known> known_;  // by key
  std::map<ContextId, uint64_t> keys_;
};

}  // namespace ringdist::shm
