#include "engine/group/group.h"

#include <algorithm>

#include "base/check.h"
#include "engine/group/op_error.h"

namespace ringdist {

Group::Group(GroupHost& host, const Membership& membership, GroupConfig config)
    : Port(host.lane_state(), GroupFlow(membership.rank, membership.size(), config.early_window)),
      host_(host),
      config_(std::move(config)),
      nonce_(membership.nonce),
      generation_(membership.generation),
      peers_(membership),
      roll_call_(rank(), size()),
      waits_(peers_, roll_call_),
      parked_(lane.scratch) {
  for (Peer& peer : peers_)  // it broke before
    if (peer.member.transport && !peer.member.transport->reaches(peer.member.context))
      peer.break_connection(Error(ErrorKind::kPeerLost, "the connection broke before the first op"),
                            now());
}

void Group::enqueue(std::shared_ptr<Op> op) {
  last_number_ = std::max(last_number_, op->number);
  if (ending_.failed()) return host_.finish_op(op, error_of(*op, nullptr));
  if (op->request.endpoint) {
    point_to_point_.enqueue(std::move(op));
    return check_lost();
  }
  const uint64_t number = op->number;
  roll_call_.called(number, op->fingerprint);
  for (const auto& [rank, theirs] : roll_call_.heard_of(number))
    if (!agree(number, rank, theirs)) break;
  if (ending_.failed()) return host_.finish_op(op, error_of(*op, nullptr));
  if (op->request.hands_over) handing_over_.insert(number);
  if (op->request.kind == Collective::kBarrier && (held_up(number) || !waiting_.empty()))
    waiting_.push_back(std::move(op));
  else
    start(std::move(op));
  if (!ending_.failed()) check_left(number);
  check_lost();
}

void Group::start(std::shared_ptr<Op> op) {
  const uint64_t number = op->number;
  last_started_ = std::max(last_started_, number);
  Run& run = *(runs_[number] = std::make_unique<Run>(*this, std::move(op), number));
  run.start();
  for (const ParkedMessage& message : parked_.take(number))
    if (!ending_.failed() && runs_.contains(number))
      deliver(run, message.header, message.payload.bytes());
}

bool Group::is_oldest(const Run& run) const {
  return (!runs_.empty() && runs_.begin()->second.get() == &run) ||
         point_to_point_.is_oldest_receive(run);
}

void Group::finished(Run& run) {
  const auto take = [this](std::unique_ptr<Run>&& ended) { retire(std::move(ended)); };
  if (run.op()->request.endpoint) {
    point_to_point_.finished(run, take);
  } else {
    const auto it = runs_.find(run.number());
    take(std::move(it->second));
    runs_.erase(it);
  }
  host_.finish_op(run.op(), {});
  check_doom();
  start_barriers();
  if (!runs_.empty()) runs_.begin()->second->grant_waiting();
}

void Group::retire(std::unique_ptr<Run>&& run) {
  ended_.emplace_back();  // first: it may throw
  run->stop();
  if (run->has_waited_for_credit())
    for (Peer& peer : peers_)
      std::erase_if(peer.blocked, [&](const auto& entry) { return entry.first == run.get(); });
  ended_.back() = std::move(run);
  lane.any_ended = true;
}

void Group::handed_over(uint64_t number) {
  handing_over_.erase(number);
  start_barriers();
}

// A barrier ends after all collectives before it, on all ranks: it begins when ours have ended, and
// their results are where the caller wants them.
bool Group::held_up(uint64_t barrier) const {
  return (!runs_.empty() && runs_.begin()->first < barrier) ||
         (!handing_over_.empty() && *handing_over_.begin() < barrier);
}

void Group::start_barriers() {
  while (!ending_.failed() && !waiting_.empty() && !held_up(waiting_.front()->number)) {
    const auto barrier = waiting_.front();
    waiting_.pop_front();
    start(barrier);
    if (!ending_.failed()) check_left(barrier->number);
  }
}

void Group::fail(const Error& cause, bool tell_others, uint64_t number) {
  if (!ending_.fail(cause)) return;
  if (config_.on_failed) config_.on_failed(cause);
  if (tell_others) announce_failure(number);
  end_ops();
}

// Each op goes when it has been told: what throws half-way leaves the rest for the next tick.
void Group::end_ops() {
  parked_.clear();
  for (; !runs_.empty(); runs_.erase(runs_.begin())) {
    auto& run = runs_.begin()->second;
    host_.finish_op(run->op(), error_of(*run->op(), run.get()));
    retire(std::move(run));
  }
  point_to_point_.stop([this](const std::shared_ptr<Op>& op,
                              const Run* run) { host_.finish_op(op, error_of(*op, run)); },
                       [this](std::unique_ptr<Run>&& run) { retire(std::move(run)); });
  while (!waiting_.empty()) {
    host_.finish_op(waiting_.front(), error_of(*waiting_.front(), nullptr));
    waiting_.pop_front();
  }
}

// Names the first op that the others cannot finish: ours that is unfinished, or the next.
void Group::announce_failure(uint64_t number) {
  const uint64_t first = runs_.empty() ? last_started_ + 1 : runs_.begin()->first;
  host_.flood(abort_notice(nonce_, generation_, rank(), std::min(number, first), failure()));
}

Error Group::error_of(const Op& op, const Run* run) const {
  return op_error(op, run, rank(), config_.name, failure());
}

// The oldest collective that runs and the oldest that waits; sends and receives.
template <typename Each>
void Group::for_each_watched(const Each& each) const {
  if (!waiting_.empty()) each(*waiting_.front(), nullptr);
  if (!runs_.empty()) each(*runs_.begin()->second->op(), runs_.begin()->second.get());
  point_to_point_.for_each([&](const std::shared_ptr<Op>& op, const Run* run) { each(*op, run); });
}

GroupVerdict Group::verdict() const {
  if (ending_.failed())
    return {GroupVerdict::kFailed, Duration(0), "failed: " + failure().message()};
  GroupVerdict worst{GroupVerdict::kIdle, Duration(0), "nothing in flight"};
  const auto add = [&](const GroupVerdict& one) {
    if (one.worse_than(worst)) worst = one;
  };
  add(waits_.awaited_here(last_number_));
  for_each_watched([&](const Op& op, const Run* run) { add(waits_.verdict(op, run, now())); });
  return worst;
}

void Group::warn_of_waits() {
  LateWarning warning(config_.warn_after, now());
  for_each_watched([&](Op& op, const Run* run) {
    warning.look_at(op, run, [&] { return waits_.verdict(op, run, now()).text; });
  });
  warning.log_for(rank(), config_.name);
}

std::string Group::dump() const {
  std::string out = "  group '" + config_.name + "', rank " + std::to_string(rank()) + " of " +
                    std::to_string(size()) + peers_.links() + ", last op #" +
                    std::to_string(last_number_) + ": " + verdict().text;
  for (const auto& op : waiting_) out += "\n   " + op->describe() + ": waits for what is before it";
  for (const auto& [number, run] : runs_) out += "\n   " + run->dump();
  out += point_to_point_.dump();
  for (int peer = 0; peer < size(); ++peer) {
    const Peer& p = peers_[peer];
    if (flow.early[peer].outstanding() > 0 || !p.blocked.empty())
      out += "\n   to " + peers_.who(peer) + ": " + std::to_string(flow.early[peer].outstanding()) +
             " bytes of early credit in use, " + std::to_string(p.blocked.size()) +
             " steps wait for credit";
  }
  parked_.for_each([&](uint64_t number, size_t count) {
    out += "\n   parked for op #" + std::to_string(number) + ": " + std::to_string(count) +
           " messages";
  });
  return out + "\n";
}

}  // namespace ringdist
