#include "simulate/network_model.h"

#include <algorithm>

#include "base/check.h"

namespace ringdist {

NetworkModel::NetworkModel(const NetworkCosts& costs, NetworkModelDelegate& events, uint64_t seed,
                           Duration jitter)
    : costs_(costs), events_(events), random_(seed), jitter_(jitter) {}

int NetworkModel::add_core(int host, double share) {
  check(host >= 0 && share >= 1, "a core on no host");
  if (hosts_.size() <= static_cast<size_t>(host)) hosts_.resize(static_cast<size_t>(host) + 1);
  cores_.push_back({host, share, {}});
  return static_cast<int>(cores_.size()) - 1;
}

void NetworkModel::link(int from_host, int to_host, Duration latency, double bytes_per_second) {
  links_[{from_host, to_host}] = {latency, bytes_per_second, {}};
}

int NetworkModel::send(const Transfer& transfer) {
  int id = static_cast<int>(messages_.size());
  if (free_ids_.empty()) {
    messages_.emplace_back();
  } else {
    id = free_ids_.back();
    free_ids_.pop_back();
  }
  messages_[id] = {transfer, {}, false, false};
  const auto copied = static_cast<int64_t>(transfer.copied * static_cast<double>(transfer.bytes));
  const Duration time = end_time(costs_of(transfer), copied);
  cores_[transfer.from].work.add(kOutgoing, {id, time});
  work(transfer.from);
  return id;
}

void NetworkModel::at(TimePoint time, int id) {
  queue_.add(std::max(time, now_), {Stage::kTime, id});
}

void NetworkModel::move_to(TimePoint time) {
  while (queue_.next() && *queue_.next() <= time) {
    const auto event = queue_.pop();
    now_ = event.at;
    happen(event.what);
  }
  now_ = std::max(now_, time);
}

void NetworkModel::happen(const Event& what) {
  switch (what.stage) {
    case Stage::kWritten:
      return written(what.id);
    case Stage::kLeft:
      return left(what.id);
    case Stage::kReached:
      return reached(what.id);
    case Stage::kReceived:
      return there(what.id);
    case Stage::kArrived:
      return arrived(what.id);
    case Stage::kTime:
      return events_.on_time(what.id);
  }
}

// Starts the next job of a core. A message that has reached its receiver's host is being received,
// any other is being sent. Arriving messages and those to send take turns.
void NetworkModel::work(int core) {
  const auto job = cores_[core].work.begin();
  if (!job) return;
  const InFlight& one = messages_[job->id];
  queue_.add(now_ + job->time, {one.reached ? Stage::kArrived : Stage::kWritten, job->id});
}

// Returns the first line of a message: memory inside a host, otherwise the line out.
FairQueue& NetworkModel::line_from(const Transfer& transfer) {
  Host& host = hosts_[cores_[transfer.from].host];
  return transfer.inside ? host.memory : host.out;
}

bool NetworkModel::is_cut(const Transfer& transfer) const {
  return !transfer.inside && !cut_.empty() && cut_.contains(hosts_of(transfer));
}

void NetworkModel::written(int id) {
  const Transfer transfer = messages_[id].transfer;
  Core& core = cores_[transfer.from];
  core.work.end();
  work(transfer.from);
  const Duration time = line_time(costs_of(transfer), transfer.bytes);
  line_from(transfer).add(transfer.flow,
                          {id, Duration(static_cast<int64_t>(time.count() * core.share))});
  start_line(transfer);
}

void NetworkModel::start_line(const Transfer& transfer) {
  if (const auto job = line_from(transfer).begin()) put_on_line(job->id, job->time);
}

// Computes when a message reaches the receiver's host. A line of the pair begins with the first
// byte, so it delays a message only if it is busy or slower than the line out.
void NetworkModel::put_on_line(int id, Duration time) {
  queue_.add(now_ + time, {Stage::kLeft, id});
  InFlight& one = messages_[id];
  TimePoint first = now_;
  one.last = now_ + time;
  Duration latency = costs_of(one.transfer).latency;
  if (const auto own = links_.find(hosts_of(one.transfer));
      !one.transfer.inside && own != links_.end()) {
    Link& link = own->second;
    const int64_t bytes = one.transfer.bytes + costs_.between.framing;
    const auto passage = link.line.pass(first, one.last, time_of(bytes, link.bytes_per_second));
    first = passage.first;
    one.last = passage.last;
    latency = link.latency;
  }
  if (jitter_ > Duration(0))
    latency += Duration(static_cast<int64_t>(random_() % static_cast<uint64_t>(jitter_.count())));
  first += latency;
  one.last += latency;
  if (jitter_ > Duration(0)) keep_order(one, first);
  // Inside a host there is no second line, so a message reaches its receiver as a whole.
  queue_.add(one.transfer.inside ? one.last : first, {Stage::kReached, id});
}

// Delays a message to behind the previous one of its flow, because jitter could reorder them.
void NetworkModel::keep_order(InFlight& one, TimePoint& first) {
  Latest& latest = latest_[one.transfer.flow];
  latest.first = first = std::max(first, latest.first);
  latest.last = one.last = std::max(one.last, latest.last);
}

// If the link is cut before the first byte has reached the other host, the message does not count
// as left.
void NetworkModel::left(int id) {
  const Transfer transfer = messages_[id].transfer;
  line_from(transfer).end();
  start_line(transfer);
  InFlight& one = messages_[id];
  if (!one.reached && is_cut(transfer))
    one.leave_held = true;
  else
    events_.on_left(id);
}

// A message over a cut link waits here, and heal() lets it reach the host again.
void NetworkModel::reached(int id) {
  InFlight& one = messages_[id];
  if (is_cut(one.transfer)) {
    cut_[hosts_of(one.transfer)].push_back(id);
    return;
  }
  one.reached = true;
  if (one.transfer.inside) {
    queue_.add(now_, {Stage::kReceived, id});
  } else {
    const Core& core = cores_[one.transfer.to];
    const Duration time = line_time(costs_.between, one.transfer.bytes);
    const auto passage = hosts_[core.host].in.pass(
        now_, std::max(one.last, now_), Duration(static_cast<int64_t>(time.count() * core.share)));
    queue_.add(passage.last, {Stage::kReceived, id});
  }
  if (std::exchange(one.leave_held, false)) events_.on_left(id);
}

void NetworkModel::there(int id) {
  const Transfer& transfer = messages_[id].transfer;
  const int core = transfer.to;
  cores_[core].work.add(kIncoming, {id, end_time(costs_of(transfer), transfer.bytes)});
  work(core);
}

void NetworkModel::arrived(int id) {
  const int core = messages_[id].transfer.to;
  cores_[core].work.end();
  work(core);
  events_.on_arrived(id);
  free_ids_.push_back(id);
}

void NetworkModel::hold(int core, bool held) {
  cores_[core].work.hold(held);
  work(core);
}

void NetworkModel::cut(int from_host, int to_host) { cut_.try_emplace({from_host, to_host}); }

void NetworkModel::heal(int from_host, int to_host) {
  const auto link = cut_.extract({from_host, to_host});
  if (link.empty()) return;
  for (const int id : link.mapped()) queue_.add(now_, {Stage::kReached, id});
}

}  // namespace ringdist
