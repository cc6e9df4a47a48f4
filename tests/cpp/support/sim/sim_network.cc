#include "support/sim/sim_network.h"

#include <algorithm>

#include "base/check.h"

namespace ringdist {
namespace {

Error peer_lost() { return {ErrorKind::kPeerLost, "the peer's Context has ended"}; }

// Returns the id of the flow between two cores.
uint64_t flow_of(int from, int to) {
  return static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(to);
}

}  // namespace

SimNetwork::SimNetwork(const SimOptions& options)
    : options_(options), wire_(options.costs, *this, options.seed, options.jitter) {}

void SimNetwork::place(ContextId context, int host) {
  std::lock_guard lock(mutex_);
  hosts_[context] = host;
}

void SimNetwork::link(int from_host, int to_host, Duration latency, double bytes_per_second) {
  std::lock_guard lock(mutex_);
  wire_.link(from_host, to_host, latency, bytes_per_second);
}

// ---- time

TimePoint SimNetwork::now() const {
  std::lock_guard lock(mutex_);
  return wire_.now();
}

std::optional<TimePoint> SimNetwork::next() const {
  std::lock_guard lock(mutex_);
  return wire_.next();
}

void SimNetwork::move_to(TimePoint time) {
  std::lock_guard lock(mutex_);
  wire_.move_to(time);
}

std::vector<ContextId> SimNetwork::take_woken() {
  std::lock_guard lock(mutex_);
  std::vector<ContextId> out;
  for (const ContextId id : std::exchange(woken_, {})) {
    SimEndpoint& end = ends_.at(id);
    end.woken = false;
    if (end.state == SimEndpoint::State::kRuns) out.push_back(id);
  }
  return out;
}

// ---- events of the NetworkModel

void SimNetwork::on_left(int id) {
  Message& message = messages_[id];
  const SendId send_id = std::exchange(message.send_id, kNoSendId);
  if (send_id != kNoSendId) tell(*find(message.from), SimEvent::sent(message.to, send_id, {}));
}

void SimNetwork::on_arrived(int id) {
  Message message = std::exchange(messages_[id], {});
  SimEndpoint& to = *find(message.to);
  SimEvent news{SimEvent::Kind::kMessage,   message.from, std::move(message.header),
                std::move(message.payload), kNoSendId,    {}};
  if (to.state == SimEndpoint::State::kEnded) return taken(news, to);
  tell(to, std::move(news));
  if (to.losing.contains(message.from)) tell_of_loss(to, message.from);
}

void SimNetwork::on_time(int id) {
  const auto [hears, ended] = losses_[static_cast<size_t>(id)];
  tell_of_loss(*find(hears), ended);
}

// Notifies `end` of the loss of `peer`, but not before the last message of that peer has arrived.
// on_arrived() calls it again.
void SimNetwork::tell_of_loss(SimEndpoint& end, ContextId peer) {
  if (end.lost.contains(peer)) return;
  end.losing.insert(peer);
  if (is_under_way(peer, end.id)) return;
  end.lost.insert(peer);
  end_sends(end, peer);
  tell(end, {SimEvent::Kind::kLost, peer, {}, {}, kNoSendId, peer_lost()});
}

// Ends all sends of `end` to `peer` with kPeerLost.
void SimNetwork::end_sends(SimEndpoint& end, ContextId peer) {
  for (Message& message : messages_) {
    if (message.from != end.id || message.to != peer || message.send_id == kNoSendId) continue;
    tell(end, SimEvent::sent(peer, std::exchange(message.send_id, kNoSendId), peer_lost()));
  }
}

// Returns true if a message of the pair is still on the NetworkModel. Messages that only wait to be
// taken do not count.
bool SimNetwork::is_under_way(ContextId from, ContextId to) const {
  return std::ranges::any_of(messages_, [from, to](const Message& message) {
    return message.from == from && message.to == to;
  });
}

// ---- endpoints

SimEndpoint* SimNetwork::find(ContextId context) {
  const auto it = ends_.find(context);
  return it == ends_.end() ? nullptr : &it->second;
}

const SimEndpoint* SimNetwork::find(ContextId context) const {
  const auto it = ends_.find(context);
  return it == ends_.end() ? nullptr : &it->second;
}

// Signals the endpoint and lists it once in woken_.
void SimNetwork::wake(SimEndpoint& end) {
  if (end.event) end.event->signal();
  if (std::exchange(end.woken, true)) return;
  woken_.push_back(end.id);
}

// Queues an event. An ended endpoint gets only the ends of its sends, which close() returns.
void SimNetwork::tell(SimEndpoint& end, SimEvent news) {
  if (end.state == SimEndpoint::State::kEnded && news.kind != SimEvent::Kind::kSent) return;
  end.news.push_back(std::move(news));
  wake(end);
}

// Counts a message as delivered, or as discarded at an ended endpoint.
void SimNetwork::taken(const SimEvent& message, SimEndpoint& by) {
  --by.due[message.peer];
  --find(message.peer)->undelivered;
}

Error SimNetwork::open(ContextId context, std::optional<EventFd> event) {
  std::lock_guard lock(mutex_);
  if (find(context) != nullptr)
    return {ErrorKind::kInvalidArgument, "this Context is on the simulated network already"};
  const auto host = hosts_.find(context);
  SimEndpoint& end = ends_[context];
  end.id = context;
  end.core = wire_.add_core(host == hosts_.end() ? 0 : host->second);
  end.event = std::move(event);
  return {};
}

void SimNetwork::send(ContextId from, const OutgoingMessage& to, ConstBytes payload, bool written) {
  std::lock_guard lock(mutex_);
  SimEndpoint& sender = *find(from);
  SimEndpoint* const receiver = find(to.peer);
  if (sender.state == SimEndpoint::State::kEnded || receiver == nullptr ||
      sender.lost.contains(to.peer)) {
    if (to.send_id != kNoSendId) tell(sender, SimEvent::sent(to.peer, to.send_id, peer_lost()));
    return;
  }
  Transfer transfer;
  transfer.from = sender.core;
  transfer.to = receiver->core;
  transfer.flow = flow_of(sender.core, receiver->core);
  transfer.bytes = static_cast<int64_t>(payload.size());
  transfer.inside = wire_.host_of(sender.core) == wire_.host_of(receiver->core);
  transfer.copied = written && transfer.inside ? 0 : 1;
  const auto id = static_cast<size_t>(wire_.send(transfer));
  if (messages_.size() <= id) messages_.resize(id + 1);
  messages_[id] = {from,
                   to.peer,
                   to.send_id,
                   {to.header.begin(), to.header.end()},
                   {payload.begin(), payload.end()}};
  ++receiver->due[from];
  ++sender.undelivered;
  sender.met.insert(to.peer);
  receiver->met.insert(from);
  if (receiver->state == SimEndpoint::State::kEnded) {  // the sender notices this later
    losses_.emplace_back(from, to.peer);
    wire_.at(wire_.now() + options_.loss_delay, static_cast<int>(losses_.size()) - 1);
  }
  if (options_.moves_by_progress && receiver->event) receiver->event->signal();
}

std::optional<SimEvent> SimNetwork::take(ContextId context, bool moves) {
  std::lock_guard lock(mutex_);
  SimEndpoint& end = *find(context);
  if (end.event) end.event->drain();
  if (end.state != SimEndpoint::State::kRuns) return std::nullopt;
  if (options_.moves_by_progress && moves)
    while (end.news.empty() && wire_.next()) wire_.move_to(*wire_.next());
  if (end.news.empty()) return std::nullopt;
  SimEvent out = std::move(end.news.front());
  end.news.pop_front();
  if (out.kind == SimEvent::Kind::kMessage) taken(out, end);
  return out;
}

bool SimNetwork::quiet(ContextId context) const {
  std::lock_guard lock(mutex_);
  const SimEndpoint& end = *find(context);
  if (end.state != SimEndpoint::State::kRuns) return true;
  return end.news.empty() && !(options_.moves_by_progress && wire_.next());
}

bool SimNetwork::reaches(ContextId from, ContextId to) const {
  std::lock_guard lock(mutex_);
  const SimEndpoint* end = find(from);
  return end != nullptr && find(to) != nullptr && !end->lost.contains(to);
}

bool SimNetwork::holds_any(ContextId from, ContextId to) const {
  std::lock_guard lock(mutex_);
  const auto& due = find(to)->due;
  const auto it = due.find(from);
  return it != due.end() && it->second > 0;
}

bool SimNetwork::all_taken(ContextId from) const {
  std::lock_guard lock(mutex_);
  return find(from)->undelivered == 0;
}

void SimNetwork::drop(ContextId context, ContextId peer) {
  std::lock_guard lock(mutex_);
  SimEndpoint& end = *find(context);
  if (end.lost.insert(peer).second) end_sends(end, peer);
}

// Ends an endpoint and notifies every Context that it had exchanged messages with, after the loss
// delay.
void SimNetwork::end(SimEndpoint& end) {
  end.state = SimEndpoint::State::kEnded;
  wire_.hold(end.core, false);
  for (const ContextId peer : end.met) {
    losses_.emplace_back(peer, end.id);
    wire_.at(wire_.now() + options_.loss_delay, static_cast<int>(losses_.size()) - 1);
  }
  // Discards its messages, but keeps the ends of its sends, which close() returns to their owner.
  std::erase_if(end.news, [&](const SimEvent& news) {
    if (news.kind == SimEvent::Kind::kMessage) taken(news, end);
    return news.kind != SimEvent::Kind::kSent;
  });
}

std::vector<SimEvent> SimNetwork::close(ContextId context) {
  std::lock_guard lock(mutex_);
  SimEndpoint& closed = *find(context);
  if (closed.state != SimEndpoint::State::kEnded) end(closed);
  std::vector<SimEvent> out;
  for (SimEvent& news : std::exchange(closed.news, {})) out.push_back(std::move(news));
  const Error closes(ErrorKind::kAborted, "the transport closed");
  for (Message& message : messages_)
    if (message.from == context && message.send_id != kNoSendId)
      out.push_back(SimEvent::sent(message.to, std::exchange(message.send_id, kNoSendId), closes));
  return out;
}

// ---- faults

void SimNetwork::kill(ContextId context) {
  std::lock_guard lock(mutex_);
  SimEndpoint& end = *find(context);
  if (end.state != SimEndpoint::State::kEnded) this->end(end);
}

void SimNetwork::stop(ContextId context) {
  std::lock_guard lock(mutex_);
  SimEndpoint& end = *find(context);
  if (end.state != SimEndpoint::State::kRuns) return;
  end.state = SimEndpoint::State::kStopped;
  wire_.hold(end.core, true);
}

void SimNetwork::resume(ContextId context) {
  std::lock_guard lock(mutex_);
  SimEndpoint& end = *find(context);
  if (end.state != SimEndpoint::State::kStopped) return;
  end.state = SimEndpoint::State::kRuns;
  wire_.hold(end.core, false);
  if (!end.news.empty()) wake(end);
}

bool SimNetwork::runs(ContextId context) const {
  std::lock_guard lock(mutex_);
  const SimEndpoint* end = find(context);
  return end != nullptr && end->state == SimEndpoint::State::kRuns;
}

void SimNetwork::cut(int host, int other) {
  std::lock_guard lock(mutex_);
  wire_.cut(host, other);
  wire_.cut(other, host);
}

void SimNetwork::heal(int host, int other) {
  std::lock_guard lock(mutex_);
  wire_.heal(host, other);
  wire_.heal(other, host);
}

}  // namespace ringdist
