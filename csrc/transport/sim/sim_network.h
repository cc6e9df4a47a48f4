// What connects the Contexts of a simulation: a NetworkModel, with the messages that are on it, and
// who lives. Time is virtual. By default it stands still until the driver moves it, so that one
// thread can drive any number of ranks:
//
//   while (auto at = network.next()) {
//     network.move_to(*at);
//     for (ContextId id : network.take_woken()) ...   // its progress(), and the ranks' work
//   }
//
// With `moves_by_progress`, time passes whenever a transport has nothing else to deliver: for those
// who know of no driver, and threads. Then what is lost is their order, not their messages.
//
// The same seed and the same calls give the same run. Any thread.
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
#include "transport/sim/sim_endpoint.h"

namespace ringdist {

struct SimOptions {
  NetworkCosts costs = {};
  uint64_t seed = 1;
  Duration jitter{0};                     // each message's latency is longer by up to that
  Duration loss_delay = Milliseconds(1);  // until peers hear that a connection has ended
  bool moves_by_progress = false;
};

class SimNetwork final : private NetworkModelDelegate {
 public:
  explicit SimNetwork(const SimOptions& options);

  // Before the Context's transport opens: on which host it is. 0 for those that are not named.
  void place(ContextId context, int host);
  // As of NetworkModel.
  void link(int from_host, int to_host, Duration latency, double bytes_per_second);

  TimePoint now() const;
  // When something happens next; nothing if nothing will by itself.
  std::optional<TimePoint> next() const;
  void move_to(TimePoint time);
  // Those who have got something to take since this was last asked, in that order; none that is
  // stopped.
  std::vector<ContextId> take_woken();

  // A process ends without a word. What it had sent still arrives; then its peers hear of it.
  void kill(ContextId context);
  // It neither takes nor sends anything, and nobody hears of it. Whoever drives its rank leaves it
  // alone meanwhile.
  void stop(ContextId context);
  void resume(ContextId context);
  bool runs(ContextId context) const;
  // Between two hosts, both ways: nothing arrives, no send ends, nobody hears of it. What is sent
  // meanwhile arrives when it is healed.
  void cut(int host, int other);
  void heal(int host, int other);

  // ---- for SimTransport; errors as Transport's

  // Error: kInvalidArgument, a second of that id while the first is open.
  Error open(ContextId context, std::optional<EventFd> event);
  // `written`: the payload lies where it leaves from.
  void send(ContextId from, const OutgoingMessage& to, ConstBytes payload, bool written);
  // The next for it; where time moves by progress, and `moves`, that which comes next.
  std::optional<SimEvent> take(ContextId context, bool moves);
  // Nothing to take, and time would bring nothing.
  bool quiet(ContextId context) const;
  bool reaches(ContextId from, ContextId to) const;
  bool holds_any(ContextId from, ContextId to) const;  // sent, and not taken
  bool all_taken(ContextId from) const;
  void drop(ContextId context, ContextId peer);
  // What its owner must still be told of its sends.
  std::vector<SimEvent> close(ContextId context);

 private:
  struct Message {
    ContextId from = 0;
    ContextId to = 0;
    SendId send_id = kNoSendId;  // until it has been told of
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
  std::vector<Message> messages_ RINGDIST_GUARDED_BY(mutex_);  // by the NetworkModel's ids
  std::vector<ContextId> woken_ RINGDIST_GUARDED_BY(mutex_);
  // Who is to hear of whose end: by the id of NetworkModel::at().
  std::vector<std::pair<ContextId, ContextId>> losses_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
