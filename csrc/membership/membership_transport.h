// Letters between the processes of a job, each to one other: on connections of their own, made when
// they are needed, so that what the control plane thinks of a process does not matter here. Letters
// may be lost; inside a host the sender may know that one is not. One thread's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "control/control_connection.h"
#include "membership/paxos/decision.h"
#include "os/epoll.h"

namespace ringdist {

// Another process, and where its control plane listens.
struct PeerAddress {
  ProcessId process = 0;
  LinkKind kind = LinkKind::kTcp;  // kLocal: of this host
  std::string address;

  bool operator==(const PeerAddress&) const = default;
};

// One process' way of letters to another: dialed when there is something to say, or to see whether
// the other one is there. One thread's.
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

class MembershipTransport {
 public:
  class Delegate {
   public:
    virtual ~Delegate() = default;
    virtual void on_letter(ProcessId from, ConstBytes letter) = 0;
    // Nobody serves that process' control socket any more, it is of this host. What it sent may
    // still wait with our control plane, and in take_in().
    virtual void on_deserted(ProcessId process) = 0;
  };

  // Events of `epoll`, which outlives it, with keys from `first_key` on are its.
  MembershipTransport(ProcessId self, const Epoll& epoll, uint64_t first_key, Delegate& owner);

  // As of OutboundConnection.
  bool send(const PeerAddress& to, uint64_t group_id, ConstBytes letter, bool certain,
            TimePoint now);
  // That process' end will be told. Again every second at least.
  void watch(const PeerAddress& process, uint64_t group_id, TimePoint now);

  // What another has dialed. False: it could not be; what it holds is lost.
  bool adopt(FramedSocket stream, ProcessId from, TimePoint now);
  // All that process has sent and the kernel has, on what was adopted.
  void take_in(ProcessId from, TimePoint now);

  void on_event(uint64_t key, TimePoint now);
  void tick(TimePoint now);
  std::optional<TimePoint> next() const;

 private:
  struct InboundConnection {
    FramedSocket stream;
    ProcessId from;
    TimePoint heard_at;
  };

  OutboundConnection& to(const PeerAddress& recipient);
  void update_state(OutboundConnection& line);
  bool read(InboundConnection& line, TimePoint now);
  void close(uint64_t key);

  const ProcessId self_;
  const Epoll& epoll_;
  Delegate& delegate_;
  uint64_t next_key_;
  std::map<uint64_t, std::unique_ptr<InboundConnection>> incoming_;  // by key
  std::map<uint64_t, ProcessId> keys_;                               // of what goes out
  std::map<ProcessId, std::unique_ptr<OutboundConnection>> outgoing_;
  std::set<ProcessId> told_;  // that are deserted
};

}  // namespace ringdist
