// Doorbells of the peers. Through them this Context wakes its peers and notices that they have
// ended. There is one per peer, whatever channels there are. Requires the lane's progress lock.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "os/doorbell.h"
#include "os/epoll.h"
#include "transport/transport.h"

namespace ringdist::shm {

// The doorbell of one peer, shared by its channels.
class PeerDoorbell {
 public:
  explicit PeerDoorbell(Fd write_end) : ringer_(RemoteDoorbell(std::move(write_end))) {}

  // Wakes the peer; does nothing once it is closed.
  void ring() const {
    if (ringer_) ringer_->ring();
  }
  // Returns true if the peer's process has ended, or if its transport or this one has closed.
  // Nothing more comes from it, and it reads nothing.
  bool closed() const { return !ringer_; }

 private:
  friend class PeerDoorbells;

  std::optional<RemoteDoorbell> ringer_;
};

// All peers' doorbells, with their places in the epoll set of the transport.
class PeerDoorbells {
 public:
  // `first_key` is the first of their keys in the epoll set, which must outlive this object.
  PeerDoorbells(const Epoll& epoll, uint64_t first_key) : epoll_(epoll), next_key_(first_key) {}

  // Adds the doorbell that came with a peer's hello. If the peer has one already, returns that one.
  // Returns kSystem if it cannot be watched.
  Result<std::shared_ptr<PeerDoorbell>> add(ContextId peer, Fd write_end);
  // Returns the peer that has ended, if the event's key belongs to a doorbell. The doorbell is
  // removed, so each end is reported once.
  std::optional<ContextId> on_event(uint64_t key);
  // Closes all doorbells.
  void close();

  // Returns the error with which a channel ends when its peer has closed.
  static Error closed() { return Error(ErrorKind::kPeerLost, "the peer closed its connection"); }

 private:
  struct Known {
    ContextId peer;
    std::shared_ptr<PeerDoorbell> doorbell;
  };
  // Closes a doorbell and removes it from the epoll set and both maps.
  void forget(std::map<uint64_t, Known>::iterator known);

  const Epoll& epoll_;
  uint64_t next_key_;
  std::map<uint64_t, Known> known_;  // by key
  std::map<ContextId, uint64_t> keys_;
};

}  // namespace ringdist::shm
