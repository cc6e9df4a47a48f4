#include "engine/group/group.h"

#include <algorithm>
#include <utility>

#include "base/describe.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/group/op_error.h"

namespace ringdist {
namespace {

constexpr Duration kStallTime = std::chrono::milliseconds(500);

// Early enough to have the answers to kStalled when a short timeout ends.
Duration stall_time(const Op& op) { return std::min(kStallTime, (op.deadline - op.started) / 4); }

}  // namespace

Group::Group(GroupDelegate& delegate, const GroupDescriptor& of, GroupConfig config)
    : ExecutionDelegate(delegate.progress_state(),
                        {of.rank, of.size(), config.eager_window, of.topology}, sender_),
      delegate_(delegate),
      config_(std::move(config)),
      nonce_(of.nonce),
      generation_(of.generation),
      peers_(of),
      sender_(progress, flow, peers_, nonce_, generation_),
      desync_(rank(), size()),
      waits_(peers_, desync_),
      collectives_(*this, [this](OpExecutionPtr&& run) { retire(std::move(run)); }),
      point_to_point_(*this, [this](OpExecutionPtr&& run) { retire(std::move(run)); }),
      service_channel_(*this, config_.service),
      lost_peers_(peers_, collectives_, point_to_point_, service_channel_),
      report_(config_.name, of.cost_source, *this, peers_, waits_, collectives_, point_to_point_,
              service_channel_) {
  peers_.connect_anew(now());
}

void Group::enqueue(const std::shared_ptr<Op>& op) {
  end_if_thrown(op, [&] { accept(op); });
}

// An exception fails the group, and the op, which may be in no list.
template <typename Body>
void Group::end_if_thrown(const std::shared_ptr<Op>& op, const Body& body) {
  try {
    body();
  } catch (...) {
    fail(current_exception_error(), /*tell_others=*/true,
         op->request.envelope ? kNoOp : op->number);
    if (!op->finished()) finish(op, error_of(*op, nullptr));
  }
}

void Group::accept(std::shared_ptr<Op> op) {
  progress.log.begin(*op, nonce_, rank());
  if (!op->request.envelope) collectives_.called(*op);
  if (failure_state_.failed()) return finish(op, error_of(*op, nullptr));
  if (op->request.envelope) {
    point_to_point_.enqueue(std::move(op));
    return check_deaths();
  }
  const uint64_t number = op->number;
  desync_.record_call(number, op->fingerprint);
  for (const auto& [rank, theirs] : desync_.peer_calls(number))
    if (!agree(number, rank, theirs)) break;
  if (failure_state_.failed()) return finish(op, error_of(*op, nullptr));
  if (!collectives_.keep(op)) begin(std::move(op));
  if (!failure_state_.failed()) check_departures(number);
  check_deaths();
}

void Group::begin(std::shared_ptr<Op> op) {
  if (op->request.device_stream) return begin_on_device(std::move(op));
  if (collectives_.ends_at_once(*op)) return finish(op, {});
  const uint64_t number = op->number;
  for (const UnexpectedMessage& message : collectives_.start(std::move(op)))
    if (OpExecution* run = collectives_.find(number))
      deliver(*run, message.header, message.payload());
}

void Group::begin_on_device(std::shared_ptr<Op> op) {
  const uint64_t number = op->number;
  for (const UnexpectedMessage& message : collectives_.start_on_device(std::move(op)))
    if (const MessageHeader& header = message.header;
        carries_fingerprint(header) && !agree(number, header.source, header.fingerprint))
      return;
}

void Group::ended_on_device(const std::shared_ptr<Op>& op, const Error& error) {
  if (op->finished()) return;
  if (error) return fail(error.prefixed(op->describe() + ": "));
  if (op->request.envelope)
    point_to_point_.ended_on_device(op);
  else
    collectives_.ended_on_device(op->number);
  finish(op, {});
  check_pending_failure();
  begin_barriers();
}

void Group::begin_barriers() {
  while (!failure_state_.failed()) {
    const auto barrier = collectives_.take_barrier();
    if (!barrier) return;
    end_if_thrown(barrier, [&] {
      begin(barrier);
      if (!failure_state_.failed()) check_departures(barrier->number);
      check_deaths();  // lost ranks did not matter while it waited
    });
  }
}

void Group::output_delivered(uint64_t number) {
  collectives_.output_delivered(number);
  begin_barriers();
}

bool Group::is_oldest(const OpExecution& run) const {
  return collectives_.oldest() == &run || point_to_point_.is_lowest_receive(run);
}

void Group::finished(OpExecution& run) {
  if (run.op()->request.envelope)
    point_to_point_.finished(run);
  else
    collectives_.finished(run);
  finish(run.op(), {});
  check_pending_failure();
  begin_barriers();
  if (OpExecution* oldest = collectives_.oldest()) oldest->grant_waiting();
}

void Group::retire(OpExecutionPtr&& run) {
  ended_.emplace_back();  // first, because it may throw
  run->stop();
  if (run->has_waited_for_credit()) sender_.forget(*run);
  ended_.back() = std::move(run);
  progress.any_ended = true;
}

void Group::on_message(ContextId from, const MessageHeader& header, const Payload& payload) {
  if (failure_state_.failed() || header.generation != generation_ || header.source < 0 ||
      header.source >= size())
    return;
  if (from != 0 && from != peers_[header.source].member.context)
    return log(LogLevel::kDebug, "group '" + config_.name + "': a message of " +
                                     peers_.describe_rank(header.source) +
                                     " came from another process and is dropped");
  sender_.on_credit(header.source, header.credit);
  if (header.type == MessageType::kCredit) return;
  if (header.type == MessageType::kData) {
    Statistics::add(progress.statistics.bytes_received, payload.size());
    Statistics::add(progress.statistics.messages_received, 1);
    peers_[header.source].traffic->received(payload.size());
    if (const Error error = check_credit(header, payload.size())) return fail_if(error);
  }
  if (header.type == MessageType::kService)
    return fail_if(service_channel_.on_message(header, payload.bytes()));
  if (PointToPointId::names(header.op)) return point_to_point_.on_message(header, payload);
  if (OpExecution* run = collectives_.find(header.op)) return deliver(*run, header, payload);
  if (collectives_.store_unexpected(header, payload))
    return fail_if(check_unexpected(header, collectives_.unexpected_count()));
  // This rank's part is done; a peer that still sends has called another op.
  if (carries_fingerprint(header)) (void)agree(header.op, header.source, header.fingerprint);
}

Error Group::check_credit(const MessageHeader& header, size_t payload) {
  if (header.eager == 0 || flow.eager[header.source].arrived(payload)) return {};
  return Error(ErrorKind::kProtocol,
               peers_.describe_rank(header.source) + " sent more than its eager credit of " +
                   std::to_string(flow.eager_window) + " bytes to rank " + std::to_string(rank()))
      .blame(header.source);
}

void Group::deliver(OpExecution& run, const MessageHeader& header, const Payload& payload) {
  if (carries_fingerprint(header) && !agree(header.op, header.source, header.fingerprint)) return;
  switch (header.type) {
    case MessageType::kData:
      return run.on_data(header, payload);
    case MessageType::kRequest:
      return run.on_request(header);
    case MessageType::kGrant:
    case MessageType::kFirstGrant:
      return run.on_grant(header);
    case MessageType::kCredit:
    case MessageType::kService:
      return;
  }
}

// Returns this rank's call. Ops in flight are found however many ops were called after them.
std::optional<Fingerprint> Group::call_of(uint64_t number) const {
  const auto call = collectives_.call(number);
  return call ? call : desync_.find(number);
}

// Returns true if a peer's call matches this rank's. Else fails the group.
bool Group::agree(uint64_t number, int peer, const Fingerprint& theirs) {
  const auto ours = call_of(number);
  if (!ours || *ours == theirs.group_part()) return true;
  const std::string self = "rank " + std::to_string(rank()), other = peers_.describe_rank(peer);
  const Error error = disagreement(number, self, *ours, other, theirs.group_part());
  fail(error.blame(peer), /*tell_others=*/true, number);
  return false;
}

void Group::fail(const Error& cause, bool tell_others, uint64_t number) noexcept {
  if (!failure_state_.fail(cause)) return;
  first_failed_ = std::min(number, collectives_.last_ended() + 1);
  failure_notifier_.begin(tell_others ? std::optional(std::min(number, collectives_.first_open()))
                                      : std::nullopt);
  end();
}

// An op is removed once it has been finished. The next tick() resumes after a lack of memory.
void Group::end() noexcept {
  const auto tell = [this](const std::shared_ptr<Op>& op, const OpExecution* run) {
    finish(op, error_of(*op, run));
  };
  failure_notifier_.notify_pending(delegate_, failure(), [this](uint64_t op) {
    return abort_notice(nonce_, generation_, rank(), op, failure());
  });
  try {
    collectives_.stop(tell);
    point_to_point_.stop(tell);
    service_channel_.end(failure());
  } catch (...) {
  }
  if (!failure_notifier_.done()) delegate_.on_busy();
}

Error Group::error_of(const Op& op, const OpExecution* run) const {
  return op_error(op, run, rank(), config_.name, failure());
}

void Group::fail_from(uint64_t number, const Error& cause, bool tell_others) {
  failure_state_.fail_after(number, cause, tell_others, now());
  check_pending_failure();
}

void Group::check_pending_failure() {
  if (failure_state_.state() != FailureState::State::kDraining) return;
  const auto due = failure_state_.due(collectives_.first_running(), LostPeerCheck::kGrace, now());
  if (due) fail(due->cause, due->tell_others);
}

void Group::fail_if(const Error& cause) {
  if (cause && !failure_state_.failed()) fail(cause, /*tell_others=*/true);
}

void Group::check_deaths() { fail_if(lost_peers_.lost_peer_error()); }

void Group::check_departures(uint64_t number) {
  if (const auto departure = lost_peers_.departure_before(number))
    fail_from(departure->first, departure->cause, /*tell_others=*/true);
}

void Group::check_departures() {
  if (const uint64_t newest = collectives_.last_running()) check_departures(newest);
}

void Group::send_service_message(int rank, std::vector<std::byte> message) {
  if (!failure_state_.failed()) service_channel_.send(rank, std::move(message));
}

void Group::set_needs_all_members(bool awaits) {
  if (!service_channel_.needs_all_members() && awaits) delegate_.on_busy();
  if (service_channel_.await(awaits)) check_deaths();
}

// Completes all sends to a departed peer, which will not confirm them.
void Group::complete_sends_to(int peer) {
  std::vector<OpExecution*> all;
  for (const auto& [number, run] : collectives_.runs()) all.push_back(run.get());
  point_to_point_.for_each([&](const std::shared_ptr<Op>&, OpExecution* run) {
    if (run != nullptr) all.push_back(run);
  });
  for (OpExecution* run : all) run->complete_sends_to(peer);  // one that ends is freed later
}

void Group::send_failed(int peer, const Error& error) {
  const GroupMember& member = peers_[peer].member;
  connection_lost(member.transport->name(), member.context, error);
}

void Group::connection_lost(std::string_view transport, ContextId context, const Error& cause) {
  for (Peer& peer : peers_)
    if (peer.member.context == context && peer.member.transport &&
        peer.member.transport->name() == transport)
      peer.break_connection(cause, now());
}

void Group::process_left(ContextId context) {
  for (int i = 0; i < size(); ++i)
    if (peers_[i].member.context == context && peers_[i].mark_exited(now())) complete_sends_to(i);
  check_departures();
}

void Group::process_lost(ContextId context, const Error& cause) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peers_[peer].member.context != context) continue;
    const std::string text = peers_.describe_rank(peer) + " is lost: " + std::string(kClosedByPeer);
    const Error error = cause.prefixed(text).blame(peer);
    if (peer == rank()) return fail(error, /*tell_others=*/false);
    if (peers_[peer].mark_lost(error, now())) complete_sends_to(peer);
  }
  check_deaths();
  check_departures();
}

void Group::tick() {
  check_pending_failure();
  if (failure_state_.failed()) return end();  // resumes after a lack of memory
  fail_if(lost_peers_.broken_link_error(now()));
  check_refused_sends();
  check_deadlines();
  if (const OpExecution* oldest = collectives_.oldest())
    check_stall(*oldest->op(), oldest->last_progress());
  if (const auto& on_device = collectives_.on_device(); !on_device.empty())
    check_stall(*on_device.begin()->second, on_device.begin()->second->started);
  fail_if(lost_peers_.stranded_op_error(now()));
  if (!failure_state_.failed()) fail_if(service_channel_.tick());
  if (!failure_state_.failed()) report_.warn_of_waits(config_.warn_after);
}

// Also retries grants that did not fit into the budget.
void Group::check_deadlines() {
  const auto late = [this](const Op& op) { return now() > op.deadline; };
  for (const auto& barrier : collectives_.barriers()) {
    if (late(*barrier)) return time_out(*barrier);
    check_stall(*barrier, barrier->started);  // the other ranks need its arrival
  }
  for (const auto& [number, run] : collectives_.runs()) {
    if (late(*run->op())) return time_out(*run->op());
    run->grant_waiting();
  }
  for (const auto& [number, op] : collectives_.on_device())
    if (late(*op)) return time_out(*op);
  std::shared_ptr<Op> late_message;
  point_to_point_.for_each([&](const std::shared_ptr<Op>& op, OpExecution* run) {
    if (late(*op)) late_message = op;
    if (run != nullptr) run->grant_waiting();
  });
  if (late_message) time_out(*late_message);
}

// Announces an op without progress, once.
void Group::check_stall(const Op& op, TimePoint still_since) {
  if (now() - still_since < stall_time(op)) return;
  // The record was replaced by a later op's, but this op is still in flight.
  if (!desync_.find(op.number)) desync_.record_call(op.number, op.fingerprint);
  if (desync_.announce_once(op.number)) announce(NoticeKind::kStalled, op.number, op.fingerprint);
}

void Group::time_out(const Op& op) { fail(waits_.timed_out(op, now()), /*tell_others=*/true); }

bool Group::idle() const {
  return collectives_.idle() && point_to_point_.idle() && !service_channel_.needs_all_members() &&
         failure_notifier_.done() && (failure_state_.failed() || !peers_.any_in_doubt());
}

}  // namespace ringdist
