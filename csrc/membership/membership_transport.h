// Letters between the processes of a job, each to one other: on connections of their own, made when
// they are needed, so that what the control plane thinks of a process does not matter here. Letters
// may be lost; inside a host the sender may know that one is not. One thread's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/clock.h"
#include "control/control_connection.h"
#include "membership/outbound_connection.h"
#include "membership/peer_address.h"
#include "os/epoll.h"

namespace ringdist {

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
