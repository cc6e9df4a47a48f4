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

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/network_costs.h"

namespace ringdist {

// What is to happen, by time; of the same time, in the order in which it was added. So a run
// depends on nothing but what is added.
template <typename What>
class EventQueue {
 public:
  struct Event {
    TimePoint at;
    uint64_t sequence;
    What what;
  };

  void add(TimePoint at, What what) { events_.push({at, sequence_++, what}); }
  bool empty() const { return events_.empty(); }
  std::optional<TimePoint> next() const {
    return empty() ? std::nullopt : std::optional(events_.top().at);
  }
  Event pop() {
    const Event out = events_.top();
    events_.pop();
    return out;
  }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
    }
  };

  std::priority_queue<Event, std::vector<Event>, Later> events_;
  uint64_t sequence_ = 0;
};

// A line with a rate: bytes pass one message after another, in the order in which their first bytes
// come. What has begun to come passes on before all of it is there.
class SerialLink {
 public:
  struct Transit {
    TimePoint first;  // when its first byte is through
    TimePoint last;
  };

  // Of a message whose first and last byte come then, and that alone would take `time`. In the
  // order of `first`.
  Transit pass(TimePoint first, TimePoint last, Duration time) {
    const TimePoint begin = std::max(first, free_);
    free_ = std::max(begin + time, last);
    return {begin, free_};
  }

 private:
  TimePoint free_{};
};

// What serves one job at a time, and those who wait for it in turn: of all flows that have a job,
// each gets one before any gets its next. Jobs of a flow keep their order. So flows that share a
// line of a host get as much of it, however much one of them has waiting.
class FairQueue {
 public:
  struct Job {
    int id;
    Duration time;
  };

  void add(uint64_t flow, Job job) {
    auto& queue = waiting_[flow];
    queue.push_back(job);
    if (queue.size() == 1) turns_.push_back(flow);
  }

  // The job that is served from now on, or nothing: one is being served, none waits, or it is held.
  std::optional<Job> begin() {
    if (busy_ || held_ || turns_.empty()) return std::nullopt;
    const uint64_t flow = turns_.front();
    turns_.pop_front();
    const auto queue = waiting_.find(flow);
    const Job job = queue->second.front();
    queue->second.pop_front();
    if (queue->second.empty())
      waiting_.erase(queue);
    else
      turns_.push_back(flow);
    busy_ = true;
    return job;
  }
  // That job is done.
  void end() {
    check(busy_, "the end of a job that was not begun");
    busy_ = false;
  }

  // While held it begins nothing; what it serves goes on.
  void hold(bool held) { held_ = held; }

 private:
  std::unordered_map<uint64_t, std::deque<Job>> waiting_;  // by flow: none is empty
  std::deque<uint64_t> turns_;                             // the flows that wait, the next first
  bool busy_ = false;
  bool held_ = false;
};

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
