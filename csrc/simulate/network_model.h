// A network that is computed. It has ranks on hosts and determines when a message has left its
// sender and when it has arrived. It moves no bytes and does not depend on transports or
// algorithms. The same calls give the same times on any machine: durations are whole nanoseconds,
// and random times have a seed.
//
// A message passes these places in order. Each serves one message at a time:
//
//   the sender's core    In turn with messages that arrive there.
//   a line               Inside a host its memory, otherwise the line out of the sender's host.
//                        Ranks that share a line take turns, message by message.
//   a line of the pair   Only for hosts with a line of their own (link()). The latency follows.
//   the line in          The line into the receiver's host, first come, first served.
//   the receiver's core  After that, the message has arrived.
//
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

// Events by time. Events of the same time keep the order in which they were added, so that a
// simulation is reproducible.
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
  // Returns the time of the first event, or nothing.
  std::optional<TimePoint> next() const {
    return empty() ? std::nullopt : std::optional(events_.top().at);
  }
  // Removes and returns the first event; there must be one.
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

// A line with a rate. Messages pass one after another, in the order in which their first bytes
// come. A message begins to pass before all of it has come.
class SerialLink {
 public:
  struct Transit {
    TimePoint first;  // when its first byte begins to pass
    TimePoint last;   // when all of it has passed
  };

  // Passes a message with its first and last byte coming at these times; alone it would take
  // `time`. Returns when the first byte begins to pass, and when the last one has passed. Calls
  // must be in the order of `first`.
  Transit pass(TimePoint first, TimePoint last, Duration time) {
    const TimePoint begin = std::max(first, free_);
    free_ = std::max(begin + time, last);
    return {begin, free_};
  }

 private:
  TimePoint free_{};
};

// A server of one job at a time, with a fair queue. Of all flows with jobs, each gets one served
// before any gets its next. Jobs of a flow keep their order. So the flows on a line of a host get
// equal shares, however many messages one of them has waiting.
class FairQueue {
 public:
  struct Job {
    int id;         // for the caller
    Duration time;  // for which the server is busy
  };

  // Queues a job of a flow. begin() must follow, because adding starts nothing.
  void add(uint64_t flow, Job job) {
    auto& queue = waiting_[flow];
    queue.push_back(job);
    if (queue.size() == 1) turns_.push_back(flow);
  }

  // Starts the next job and returns it. Returns nothing if a job is being served, none waits, or
  // the queue is held.
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
  // Ends the current job; there must be one. It does not start the next.
  void end() {
    check(busy_, "the end of a job that was not begun");
    busy_ = false;
  }

  // A held queue starts no job; the current one continues.
  void hold(bool held) { held_ = held; }

 private:
  std::unordered_map<uint64_t, std::deque<Job>> waiting_;  // by flow; none is empty
  std::deque<uint64_t> turns_;                             // flows with jobs, the next one first
  bool busy_ = false;
  bool held_ = false;
};

// A message to send.
struct Transfer {
  int from = 0;  // number of a core
  int to = 0;
  uint64_t flow = 0;    // one number per ordered pair of ranks
  int64_t bytes = 0;    // bytes of payload
  bool inside = false;  // within one host
  double copied = 1;    // fraction that the sender copies; less if it is already in place
};

// Receives the events of a NetworkModel. The methods are called in move_to(), in the order of time.
// They may call the NetworkModel, except for move_to().
class NetworkModelDelegate {
 public:
  virtual ~NetworkModelDelegate() = default;
  virtual void on_left(int id) = 0;     // all of it is on the line: its memory is free
  virtual void on_arrived(int id) = 0;  // all of it has arrived
  virtual void on_time(int id) = 0;     // the time of an at() has come
};

// The network and all messages on it. Time moves only in move_to().
class NetworkModel {
 public:
  // The start of virtual time. It is later than any real clock of a process, so that times from a
  // real clock are in the past.
  static constexpr TimePoint kStart{std::chrono::hours(24 * 365 * 50)};

  // The latency of each message grows by a random time up to `jitter`, drawn from the seed.
  // `events` must outlive this object.
  NetworkModel(const NetworkCosts& costs, NetworkModelDelegate& events, uint64_t seed = 1,
               Duration jitter = Duration(0));

  // Adds a core for a rank on a host and returns its number; hosts are numbered from 0. `share` is
  // the factor by which the host's lines are slower for it, because ranks outside of the model use
  // them too.
  int add_core(int host, double share = 1);
  int host_of(int core) const { return cores_[core].host; }
  // Gives messages from one host to another, in this direction, a line and a latency of their own.
  // Their other costs are those between hosts.
  void link(int from_host, int to_host, Duration latency, double bytes_per_second);

  // Sends a message at the current time and returns its id. Its cores must exist. The delegate gets
  // on_left() and on_arrived() with the id, which is reused after that.
  int send(const Transfer& transfer);
  // Calls on_time() with `id` at that time, or in the next move_to() if it has passed.
  void at(TimePoint time, int id);

  TimePoint now() const { return now_; }
  // Returns the time of the next event, or nothing if no event is pending.
  std::optional<TimePoint> next() const { return queue_.next(); }
  // Moves the time and lets all events until then happen, in order. A time in the past does
  // nothing.
  void move_to(TimePoint time);

  // Holds a core, or lets it continue. A held core starts nothing, sends included.
  void hold(int core, bool held);
  // Cuts the connection from one host to the other, in this direction. Messages sent meanwhile
  // wait, and do not count as left, until heal().
  void cut(int from_host, int to_host);
  void heal(int from_host, int to_host);

 private:
  // The stages of a message, in order, and the event of an at().
  enum class Stage : uint8_t {
    kWritten,   // the sender's core has written it
    kLeft,      // all of it is on the line
    kReached,   // its first byte is at the receiver's host; inside a host, all of it
    kReceived,  // all of it is at the receiver's host
    kArrived,   // the receiver's core has read it
    kTime       // the time of an at() has come
  };
  struct Event {
    Stage stage;
    int id;
  };
  enum Work : uint64_t { kOutgoing, kIncoming };  // the two flows of a core
  struct Core {
    int host;
    double share;    // see add_core()
    FairQueue work;  // flows are those of Work
  };
  struct Host {
    FairQueue memory;  // messages inside the host
    FairQueue out;     // the line to other hosts
    SerialLink in;     // the line from other hosts
  };
  struct Link {
    Duration latency{0};
    double bytes_per_second = 0;
    SerialLink line;
  };
  struct InFlight {
    Transfer transfer;
    TimePoint last;           // when its last byte reaches the receiver's host
    bool reached = false;     // its first byte has reached that host
    bool leave_held = false;  // has left its host, but on_left() waits because the link is cut
  };
  // The latest arrival times of a flow, to keep its order.
  struct Latest {
    TimePoint first;
    TimePoint last;
  };
  using HostPair = std::pair<int, int>;  // from, to

  const LinkCosts& costs_of(const Transfer& transfer) const {
    return transfer.inside ? costs_.inside : costs_.between;
  }
  HostPair hosts_of(const Transfer& transfer) const {
    return {cores_[transfer.from].host, cores_[transfer.to].host};
  }
  FairQueue& line_from(const Transfer& transfer);
  bool is_cut(const Transfer& transfer) const;
  // Start the next job of a core or a line, unless it is busy.
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
  std::map<HostPair, std::vector<int>> cut_;  // with the ids that wait
  std::vector<InFlight> messages_;            // by id
  std::vector<int> free_ids_;
  std::unordered_map<uint64_t, Latest> latest_;  // by flow; only with jitter
};

}  // namespace ringdist
