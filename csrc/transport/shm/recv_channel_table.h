// All links that come in to this Context, and the socket at which they do. With the lane's token
// held.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "os/epoll.h"
#include "transport/shm/recv_channel.h"

namespace ringdist::shm {

class RecvChannelTable {
 public:
  RecvChannelTable(OwnShmSegment& own, PeerDoorbells& bells, ContextId me, const Epoll& epoll)
      : own_(own), bells_(bells), me_(me), epoll_(epoll) {}

  // Keys of the epoll set below `first_key` are others'.
  Error listen(uint64_t first_key);
  const std::string& address() const { return address_; }

  // False if the key is none of ours.
  bool on_event(uint64_t key);
  // A few messages of every link. True if there were any.
  bool deliver(TransportDelegate& receiver);
  bool has_messages() const;
  bool has_messages_of(ContextId peer) const;
  // Something for reap() without an event.
  bool has_finished() const;
  // Lets go of links that have ended and been read to their end, and says whose they were.
  bool reap(TimePoint now, const std::function<void(ContextId, const Error&)>& lost);
  // When to reap() even without an event.
  std::optional<TimePoint> due() const;
  // What this peer has sent so far is all there will be.
  void drop(ContextId peer, const Error& cause);
  void close();

 private:
  void accept_all();
  void close_unneeded_socket(RecvChannel& link) const;
  void close_socket(RecvChannel& link) const;
  void hand_over(std::map<uint64_t, std::unique_ptr<RecvChannel>>::iterator caller);

  OwnShmSegment& own_;
  PeerDoorbells& bells_;
  const ContextId me_;
  const Epoll& epoll_;
  std::string address_;
  Fd listener_;
  std::optional<TimePoint> accept_again_;  // no descriptor was left
  bool warned_ = false;                    // so in the log
  uint64_t listener_key_ = 0;
  uint64_t next_key_ = 0;
  std::map<uint64_t, std::unique_ptr<RecvChannel>> links_;
};

}  // namespace ringdist::shm
