// One process' way of letters to another: dialed when there is something to say, or to see whether
// the other one is there. One thread's.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "control/control_connection.h"
#include "membership/peer_address.h"
#include "os/epoll.h"

namespace ringdist {

class OutboundConnection {
 public:
  //   kClosed      nothing was said so far, or it broke; dialed when something is
  //   kConnecting  to another host; what is said meanwhile waits
  //   kOpen        the kernel takes what is said, for the other to read when it runs
  //   kDeserted    of this host: nobody listens there. Its process has ended, or has left for good
  enum class State : uint8_t { kClosed, kConnecting, kOpen, kDeserted };

  // Events of `epoll` come with the key.
  OutboundConnection(ProcessId self, PeerAddress to, const Epoll& epoll, uint64_t key);
  ~OutboundConnection() { close(); }
  OutboundConnection(const OutboundConnection&) = delete;
  OutboundConnection& operator=(const OutboundConnection&) = delete;

  State state() const { return state_; }
  const PeerAddress& to() const { return to_; }

  // True once the kernel has the letter: the other gets it even if this process ends now. Else it
  // may come or not. `certain` letters may fill the socket's buffer; others leave room for them.
  // `lineage`: that it is about, which shows another host that we belong there.
  bool send(uint64_t group_id, ConstBytes letter, bool certain, TimePoint now);
  // Dials, if nothing is there: its end will be an event, or is seen at once.
  void look(uint64_t group_id, TimePoint now);
  void on_event(TimePoint now);
  // What the socket did not take at once; dials that last too long.
  void tick(TimePoint now);
  // When it is to be dialed again.
  std::optional<TimePoint> next() const;
  // Since when nobody has used it.
  TimePoint used_at() const { return used_at_; }
  void close();

 private:
  void dial(TimePoint now);
  void opened(TimePoint now);
  void fail(int errno_value, TimePoint now);
  bool write(ConstBytes letter, bool certain, TimePoint now);

  const ProcessId self_;
  const PeerAddress to_;
  const Epoll& epoll_;
  const uint64_t key_;
  State state_ = State::kClosed;
  std::optional<FramedSocket> stream_;
  std::deque<std::vector<std::byte>> waiting_;
  bool lost_ = false;      // it ended by itself: whether the other one has, too, is to be seen
  uint64_t group_id_ = 0;  // the last that was spoken of
  TimePoint dialed_at_{};
  Duration pause_{0};  // between dials
  TimePoint used_at_{};
};

}  // namespace ringdist
