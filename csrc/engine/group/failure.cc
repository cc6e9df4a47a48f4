// How a Group finds out that it cannot go on: disagreement, silence, loss, time.
#include <algorithm>

#include "base/closed_by_peer.h"
#include "base/log.h"
#include "engine/group/group.h"

namespace ringdist {
namespace {

constexpr Duration kStallTime = std::chrono::milliseconds(500);
// A broken connection is a symptom. The control plane usually knows the cause a moment later.
constexpr auto kBrokenGrace = std::chrono::milliseconds(500);

// Early enough for the answers to a roll call to be there when a short timeout ends.
Duration patience(const Op& op) { return std::min(kStallTime, (op.deadline - op.started) / 4); }

// Ours of that number: what is in flight has not been forgotten, however many ops came after it.
std::optional<Fingerprint> find_call(const std::map<uint64_t, std::unique_ptr<Run>>& runs,
                                     const RollCall& history, uint64_t number) {
  const auto it = runs.find(number);
  return it == runs.end() ? history.find(number) : it->second->op()->fingerprint;
}

}  // namespace

// True if a peer's call is ours. Else the group has failed.
bool Group::agree(uint64_t number, int peer, const Fingerprint& theirs) {
  const auto ours = find_call(runs_, roll_call_, number);
  if (!ours || *ours == theirs.group_part()) return true;
  fail(disagreement(number, "rank " + std::to_string(rank()), *ours, peers_.who(peer),
                    theirs.group_part())
           .blame(peer),
       /*tell_others=*/true, number);
  return false;
}

void Group::announce(NoticeKind kind, uint64_t number, const Fingerprint& fingerprint) {
  Notice notice;
  notice.kind = kind;
  notice.generation = generation_;
  notice.nonce = nonce_;
  notice.op = number;
  notice.rank = rank();
  notice.fingerprint = fingerprint;
  host_.flood(notice);
}

void Group::announce_leave(NoticeKind how) {
  if (ending_.failed()) return;
  const uint64_t last = runs_.empty() ? last_number_ : runs_.begin()->first - 1;
  announce(how, last, {});
}

void Group::on_notice(const Notice& notice) {
  if (ending_.failed() || notice.generation != generation_ || notice.rank < 0 ||
      notice.rank >= size() || notice.rank == rank())
    return;
  const bool leaves = notice.kind == NoticeKind::kLeave || notice.kind == NoticeKind::kExit;
  if (leaves)
    log(LogLevel::kDebug, "group '" + config_.name + "': " + peers_.who(notice.rank) +
                              " left after op #" + std::to_string(notice.op));
  switch (notice.kind) {
    case NoticeKind::kAbort:
      fail_from(notice.op, cause_of(notice), /*tell_others=*/false);
      // Its exit, which is likely to follow, is no other failure.
      return peers_[notice.rank].leave(std::max<uint64_t>(notice.op, 1) - 1, now());
    case NoticeKind::kStalled:
    case NoticeKind::kArrived:
      return on_roll_call(notice);
    case NoticeKind::kLeave:
      peers_[notice.rank].leave(notice.op, now());
      if (!runs_.empty()) check_left(runs_.rbegin()->first);
      return;
    case NoticeKind::kAbsent:
      return roll_call_.absent(notice.rank, notice.op, now());
    case NoticeKind::kExit:  // process_left() follows when it has ended
      return peers_[notice.rank].announce_exit(notice.op, now());
  }
}

void Group::on_roll_call(const Notice& notice) {
  roll_call_.heard(notice.op, notice.rank, notice.fingerprint);
  if (notice.op > last_number_) {
    if (roll_call_.answers_absence(notice.op)) announce(NoticeKind::kAbsent, last_number_, {});
    return;
  }
  const auto ours = find_call(runs_, roll_call_, notice.op);
  if (!ours || !agree(notice.op, notice.rank, notice.fingerprint)) return;
  if (notice.kind == NoticeKind::kStalled && roll_call_.tell_once(notice.op))
    announce(NoticeKind::kArrived, notice.op, *ours);
}

// What it had sent has been read. So if its part of an op was done, nothing of that is missing
// here.
void Group::check_lost() {
  for (int peer = 0; peer < size() && !ending_.failed(); ++peer)
    if (peers_[peer].loss() && lacks(peer)) fail(peers_[peer].loss(), /*tell_others=*/true);
}

bool Group::lacks(int peer) const {
  const auto does = [peer](const Run& run) { return run.waits_for(peer) || run.owes(peer); };
  bool any = std::any_of(runs_.begin(), runs_.end(),
                         [&](const auto& entry) { return does(*entry.second); });
  point_to_point_.for_each([&](const std::shared_ptr<Op>& op, const Run* run) {
    any |= run != nullptr ? does(*run) : op->request.endpoint->peer == peer;
  });
  return any;
}

// Nobody will say that they arrived.
void Group::forgive_sends(int peer) {
  std::vector<Run*> all;
  for (const auto& [number, run] : runs_) all.push_back(run.get());
  point_to_point_.for_each([&](const std::shared_ptr<Op>&, Run* run) {
    if (run != nullptr) all.push_back(run);
  });
  for (Run* run : all) run->forgive_sends(peer);  // one that ends so is freed later
}

// A rank that left took part in ops up to a number; an op beyond it can never end.
void Group::check_left(uint64_t number) {
  const int first = peers_.first_leaver();
  if (first < 0 || number <= *peers_[first].last_op()) return;
  fail_from(*peers_[first].last_op() + 1, peers_.departure(first), /*tell_others=*/true);
}

void Group::fail_from(uint64_t number, const Error& cause, bool tell_others) {
  ending_.doom(number, cause, tell_others, now());
  check_doom();
}

void Group::check_doom() {
  std::optional<Ending::Oldest> oldest;
  if (!runs_.empty()) oldest = {runs_.begin()->first, runs_.begin()->second->last_progress()};
  if (const auto doom = ending_.due(oldest, kBrokenGrace, now()))
    fail(doom->cause, doom->tell_others);
}

void Group::tick() {
  check_doom();
  if (ending_.failed()) return end_ops();  // what fail() left, if there was no memory for it
  check_broken();
  for (const auto& op : waiting_) {
    if (now() > op->deadline) return time_out(*op);
    // The others must know that a barrier has come, whatever it waits for.
    if (now() - op->started >= patience(*op) && roll_call_.tell_once(op->number))
      announce(NoticeKind::kStalled, op->number, op->fingerprint);
  }
  for (auto& [number, run] : runs_) {
    if (now() > run->op()->deadline) return time_out(*run->op());
    run->grant_waiting();
  }
  if (!runs_.empty()) check_stall(*runs_.begin()->second);
  if (!ending_.failed()) check_point_to_point();
  if (!ending_.failed()) warn_of_waits();
}

void Group::check_point_to_point() {
  std::shared_ptr<Op> late;
  std::shared_ptr<Op> stranded;
  point_to_point_.for_each([&](const std::shared_ptr<Op>& op, Run* run) {
    if (now() > op->deadline) late = op;
    if (waits_for_leaver(*op, run)) stranded = op;
    if (run != nullptr) run->grant_waiting();
  });
  if (late) return time_out(*late);
  if (!stranded) return;
  const int peer = stranded->request.endpoint->peer;
  fail(peer == Endpoint::kAnySource
           ? Error(ErrorKind::kPeerLost,
                   std::string(kClosedByPeer) + "all other ranks have left the group or died")
           : peers_.departure(peer),
       /*tell_others=*/true);
}

// What a rank sent before it left is still on its way for a moment.
bool Group::waits_for_leaver(const Op& op, const Run* run) const {
  const auto over = [&](int peer) {
    if (!gone(peer) || now() - peers_[peer].gone_at() < kBrokenGrace) return false;
    return run == nullptr || now() - run->last_progress() > kBrokenGrace;
  };
  const int other = op.source() >= 0 ? op.source() : op.request.endpoint->peer;
  if (other >= 0) return over(other);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() && !over(peer)) return false;
  return true;
}

void Group::check_stall(Run& run) {
  if (now() - run.last_progress() < patience(*run.op())) return;
  const uint64_t number = run.op()->number;
  // Forgotten for a later one: that is in flight, too.
  if (!roll_call_.find(number)) roll_call_.called(number, run.op()->fingerprint);
  if (roll_call_.tell_once(number)) announce(NoticeKind::kStalled, number, run.op()->fingerprint);
}

bool Group::idle() const {
  return runs_.empty() && waiting_.empty() && point_to_point_.idle() &&
         (ending_.failed() || !peers_.any_in_doubt());
}

void Group::check_broken() {
  for (int peer = 0; peer < size(); ++peer) {
    const Peer& p = peers_[peer];
    if (!p.broken_for(kBrokenGrace, now()) || p.loss()) continue;
    if (p.said_last() && !waits_in_vain(peer)) continue;
    return fail(Error(ErrorKind::kPeerLost,
                      "the connection to " + peers_.who(peer) + " broke: " + p.breakage().message())
                    .blame(peer),
                /*tell_others=*/true);
  }
}

// The peer has left, its connection is gone, and something that it sent us is still missing.
bool Group::waits_in_vain(int peer) const {
  return std::any_of(runs_.begin(), runs_.end(), [&](const auto& entry) {
    const Run& run = *entry.second;
    return entry.first <= *peers_[peer].said_last() && run.waits_for(peer) &&
           now() - run.last_progress() > kBrokenGrace;
  });
}

void Group::time_out(const Op& op) { fail(waits_.timed_out(op, now()), /*tell_others=*/true); }

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
  for (int peer = 0; peer < size(); ++peer)
    if (peers_[peer].member.context == context && peers_[peer].end(now())) forgive_sends(peer);
  if (!runs_.empty()) check_left(runs_.rbegin()->first);
}

void Group::process_lost(ContextId context, const Error& cause) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peers_[peer].member.context != context) continue;
    const Error error =
        cause.prefixed(peers_.who(peer) + " is lost: " + std::string(kClosedByPeer)).blame(peer);
    if (peer == rank()) return fail(error, /*tell_others=*/false);
    if (peers_[peer].die(error, now())) forgive_sends(peer);
  }
  check_lost();
  if (!runs_.empty()) check_left(runs_.rbegin()->first);
}

}  // namespace ringdist
