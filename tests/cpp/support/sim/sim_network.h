// Simulated network between Contexts: a NetworkModel, the messages that are on it, and the state of
// each process. Time is virtual. By default it stands still until the driver moves it, so that one
// thread can drive any number of ranks. The driver repeats three calls until next() has nothing:
// next(), move_to() that time, and take_woken(). For each woken Context it then calls progress() of
// the transport and does the rank's work.
//
// With `moves_by_progress`, time passes whenever a transport has nothing else to deliver. This
// serves callers without a driver, and threads. Then the order of messages is not reproducible, but
// none is lost.
//
// The same seed and the same calls give the same run. Any thread; every method takes the one mutex.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/thread_annotations.h"
#include "simulate/network_model.h"
#include "support/sim/sim_endpoint.h"

namespace ringdist {

// Options of a simulated network.
struct SimOptions {
  NetworkCosts costs = {};
  uint64_t seed = 1;
  Duration jitter{0};  // each message's latency grows by a random time up to this
  Duration loss_delay = Milliseconds(1);  // time until peers notice that a connection has ended
  bool moves_by_progress = false;
};

// The network itself. Contexts join it with open() and end with close() or kill().
class SimNetwork final : private NetworkModelDelegate {
 public:
  explicit SimNetwork(const SimOptions& options);

  // Sets the host of a Context; must precede the opening of its transport. A Context without a call
  // is on host 0.
  void place(ContextId context, int host);
  // Gives a pair of hosts a link of its own; see NetworkModel::link().
  void link(int from_host, int to_host, Duration latency, double bytes_per_second);

  // Returns the virtual time.
  TimePoint now() const;
  // Returns the time of the next event, or nothing if no event is pending.
  std::optional<TimePoint> next() const;
  // Moves the time forward and lets all events until then happen.
  void move_to(TimePoint time);
  // Returns the Contexts that received events since the last call, in that order. Stopped and ended
  // ones are left out.
  std::vector<ContextId> take_woken();

  // Ends a process without notice. Messages that it had sent still arrive; after that its peers are
  // notified of the loss.
  void kill(ContextId context);
  // Stops a process, as SIGSTOP does: it takes and sends nothing, and no peer is notified. The
  // driver must not run its rank until resume().
  void stop(ContextId context);
  void resume(ContextId context);
  // Returns true if the Context is open, not stopped and not ended.
  bool runs(ContextId context) const;
  // Cuts the connection of two hosts in both directions. Nothing arrives, no send ends and no peer
  // is notified. Messages sent meanwhile arrive after heal().
  void cut(int host, int other);
  void heal(int host, int other);

  // ---- for SimTransport; errors as those of Transport

  // Adds a Context. `event` is signalled when it has something to take. Returns kInvalidArgument if
  // the Context is on the network already.
  Error open(ContextId context, std::optional<EventFd> event);
  // Sends a message and copies it. `written`: the payload needs no copy before it leaves, which
  // makes it cheaper inside a host. Failures become events of the sender.
  void send(ContextId from, const OutgoingMessage& to, ConstBytes payload, bool written);
  // Takes the next event of a Context, or nothing. With `moves_by_progress` and `moves`, first
  // moves the time until there is an event or none is pending.
  std::optional<SimEvent> take(ContextId context, bool moves);
  // Returns true if there is nothing to take and the passing of time would bring nothing, or if the
  // Context does not run.
  bool quiet(ContextId context) const;
  // Returns true if both Contexts were opened and `from` has not lost `to`.
  bool reaches(ContextId from, ContextId to) const;
  bool holds_any(ContextId from, ContextId to) const;  // undelivered messages
  // Returns true if every message of `from` has been taken or discarded.
  bool all_taken(ContextId from) const;
  // Marks the peer as lost for `context` and ends its sends to it with kPeerLost.
  void drop(ContextId context, ContextId peer);
  // Closes a Context. Returns the events for all of its sends that have not been reported.
  std::vector<SimEvent> close(ContextId context);

 private:
  // A message on the network, or a free entry.
  struct Message {
    ContextId from = 0;
    ContextId to = 0;
    SendId send_id = kNoSendId;  // kNoSendId once its end has been reported
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
  };

  void on_left(int id) override RINGDIST_REQUIRES(mutex_);
  void on_arrived(int id) override RINGDIST_REQUIRES(mutex_);
  void on_time(int id) override RINGDIST_REQUIRES(mutex_);

  SimEndpoint* find(ContextId context) RINGDIST_REQUIRES(mutex_);
  const SimEndpoint* find(ContextId context) const RINGDIST_REQUIRES(mutex_);
  void tell(SimEndpoint& end, SimEvent news) RINGDIST_REQUIRES(mutex_);
  void wake(SimEndpoint& end) RINGDIST_REQUIRES(mutex_);
  void taken(const SimEvent& message, SimEndpoint& by) RINGDIST_REQUIRES(mutex_);
  void end(SimEndpoint& end) RINGDIST_REQUIRES(mutex_);
  bool is_under_way(ContextId from, ContextId to) const RINGDIST_REQUIRES(mutex_);
  void tell_of_loss(SimEndpoint& end, ContextId peer) RINGDIST_REQUIRES(mutex_);
  void end_sends(SimEndpoint& end, ContextId peer) RINGDIST_REQUIRES(mutex_);

  const SimOptions options_;
  mutable std::mutex mutex_;
  NetworkModel wire_ RINGDIST_GUARDED_BY(mutex_);
  std::map<ContextId, int> hosts_ RINGDIST_GUARDED_BY(mutex_);
  std::map<ContextId, SimEndpoint> ends_ RINGDIST_GUARDED_BY(mutex_);
  std::vector<Message> messages_ RINGDIST_GUARDED_BY(mutex_);  // by the ids of NetworkModel::send()
  std::vector<ContextId> woken_ RINGDIST_GUARDED_BY(mutex_);
  // Pairs of a Context to notify and the peer that it lost, by the id of NetworkModel::at().
  std::vector<std::pair<ContextId, ContextId>> losses_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
