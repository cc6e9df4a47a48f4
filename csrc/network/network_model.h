// A network that is computed: ranks on hosts, and when what one sends to another has left and has
// arrived. It moves no bytes and knows no transport and no algorithm. Pure but for its state: the
// same calls give the same times, whatever the machine.
//
// What a message goes through, in this order; each serves one at a time:
//   the sender's core     in turn with what arrives there
//   a line                inside a host its memory; else the line out of the sender's host. Ranks
//                         that share it go in turn, message by message
//   a line of that pair   of hosts, where they have one of their own (link()), and the latency
//   the line into         the receiver's host, first come first served
//   the receiver's core   then it has arrived
// Messages of a flow keep their order. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "network/costs.h"
#include "network/event_queue.h"
#include "network/fair_queue.h"
#include "network/serial_link.h"

namespace ringdist {

// One message on its way.
struct Transfer {
  int from = 0;  // cores
  int to = 0;
  uint64_t flow = 0;    // the same for all messages of an ordered pair of ranks, and for no others
  int64_t bytes = 0;    // of payload
  bool inside = false;  // of a host
  double copied = 1;    // of it, by its sender: what lies where it leaves from need not be
};

// Whom the NetworkModel tells; it may be called from there.
class NetworkModelDelegate {
 public:
  virtual ~NetworkModelDelegate() = default;
  virtual void on_left(int id) = 0;     // all of it is on the line: its memory is free
  virtual void on_arrived(int id) = 0;  // the last of it
  virtual void on_time(int id) = 0;     // of at()
};

class NetworkModel {
 public:
  // Later than any real clock of a process, so that what was made by one is old.
  static constexpr TimePoint kStart{std::chrono::hours(24 * 365 * 50)};

  // `jitter`: each message's latency is longer by up to that, drawn from the seed.
  NetworkModel(const NetworkCosts& costs, NetworkModelDelegate& events, uint64_t seed = 1,
               Duration jitter = Duration(0));

  // A rank's core on a host; hosts are numbered from 0. `share`: how much slower than alone it has
  // its host's lines, where ranks that are not here use them as well.
  int add_core(int host, double share = 1);
  int host_of(int core) const { return cores_[core].host; }
  // Messages from one host to another have a line and a latency of their own; the rest of the costs
  // is that of others between hosts.
  void link(int from_host, int to_host, Duration latency, double bytes_per_second);

  // From now on. The id is told of its leaving, then of its arrival, and used again after that.
  int send(const Transfer& transfer);
  void at(TimePoint time, int id);

  TimePoint now() const { return now_; }
  // When something happens next; nothing if nothing will by itself.
  std::optional<TimePoint> next() const { return queue_.next(); }
  // Lets happen what does until then, in order.
  void move_to(TimePoint time);

  // A core that is held begins nothing, sends included.
  void hold(int core, bool held);
  // Nothing passes from one host to the other, in this direction; what is sent waits, and has not
  // left. Until it is healed.
  void cut(int from_host, int to_host);
  void heal(int from_host, int to_host);

 private:
  enum class Stage : uint8_t { kWritten, kLeft, kReached, kThere, kArrived, kTime };
  struct Event {
    Stage stage;
    int id;
  };
  enum Work : uint64_t { kOutgoing, kIncoming };  // flows of a core
  struct Core {
    int host;
    double share;
    FairQueue work;
  };
  struct Host {
    FairQueue memory;
    FairQueue out;
    SerialLink in;
  };
  struct Link {
    Duration latency{0};
    double bytes_per_second = 0;
    SerialLink line;
  };
  struct InFlight {
    Transfer transfer;
    TimePoint last;           // when its last byte reaches the receiver's host
    bool reached = false;     // its first has
    bool leave_held = false;  // has left, as far as its host can see, but the link is cut
  };
  struct Latest {
    TimePoint first;
    TimePoint last;
  };
  using HostPair = std::pair<int, int>;

  const LinkCosts& costs_of(const Transfer& transfer) const {
    return transfer.inside ? costs_.inside : costs_.between;
  }
  HostPair hosts_of(const Transfer& transfer) const {
    return {cores_[transfer.from].host, cores_[transfer.to].host};
  }
  FairQueue& line_from(const Transfer& transfer);
  bool is_cut(const Transfer& transfer) const;
  void work(int core);
  void start_line(const Transfer& transfer);
  void put_on_line(int id, Duration time);
  void keep_order(InFlight& one, TimePoint& first);
  void happen(const Event& what);
  void written(int id);
  void left(int id);
  void reached(int id);
  void there(int id);
  void arrived(int id);

  const NetworkCosts costs_;
  NetworkModelDelegate& events_;
  std::mt19937_64 random_;
  const Duration jitter_;
  TimePoint now_ = kStart;
  EventQueue<Event> queue_;
  std::vector<Core> cores_;
  std::vector<Host> hosts_;
  std::map<HostPair, Link> links_;
  std::map<HostPair, std::vector<int>> cut_;  // with what waits
  std::vector<InFlight> messages_;
  std::vector<int> free_ids_;
  std::unordered_map<uint64_t, Latest> latest_;  // by flow, where latencies differ
};

}  // namespace ringdist
