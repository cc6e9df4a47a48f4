// Parts of Group: notices to and from the other ranks, and receives that are aborted.
#include <algorithm>

#include "base/describe.h"
#include "base/log.h"
#include "engine/group/group.h"
#include "engine/group/op_error.h"

namespace ringdist {

void Group::announce(NoticeKind kind, uint64_t number, const Fingerprint& fingerprint) {
  Notice notice = make_notice(kind, nonce_, generation_, rank(), number);
  notice.fingerprint = fingerprint;
  delegate_.flood(notice);
}

void Group::announce_leave(NoticeKind how) {
  if (!failure_state_.failed()) announce(how, collectives_.last_ended(), {});
}

void Group::on_notice(const Notice& notice) {
  if (failure_state_.failed() || notice.generation != generation_ || notice.rank < 0 ||
      notice.rank >= size() || notice.rank == rank())
    return;
  if (notice.from != 0 && notice.from != peers_[notice.rank].member.context)
    return log(LogLevel::kDebug, "group '" + config_.name + "': a notice of " +
                                     peers_.describe_rank(notice.rank) +
                                     " came from another process and is ignored");
  const bool leaves = notice.kind == NoticeKind::kLeave || notice.kind == NoticeKind::kExit;
  if (leaves)
    log(LogLevel::kDebug, "group '" + config_.name + "': " + peers_.describe_rank(notice.rank) +
                              " left after op #" + std::to_string(notice.op));
  switch (notice.kind) {
    case NoticeKind::kAbort:
      fail_from(notice.op, cause_of(notice), /*tell_others=*/false);
      // The exit of its process, which is likely to follow, is no other failure.
      return peers_[notice.rank].mark_left(std::max<uint64_t>(notice.op, 1) - 1, now());
    case NoticeKind::kStalled:
    case NoticeKind::kArrived:
      return on_call_notice(notice);
    case NoticeKind::kLeave:
      peers_[notice.rank].mark_left(notice.op, now());
      return check_departures();
    case NoticeKind::kAbsent:
      return desync_.record_absence(notice.rank, notice.op, now());
    case NoticeKind::kReceivesAborted:
      return peers_[notice.rank].abort_receives(now());
    case NoticeKind::kExit:  // process_left() follows once it has ended
      return peers_[notice.rank].mark_exiting(notice.op, now());
  }
}

void Group::on_call_notice(const Notice& notice) {
  desync_.record_peer_call(notice.op, notice.rank, notice.fingerprint);
  const uint64_t last = collectives_.last_called();
  if (notice.op > last) {
    if (desync_.announce_absence_once(notice.op)) announce(NoticeKind::kAbsent, last, {});
    return;
  }
  const auto ours = call_of(notice.op);
  if (!ours || !agree(notice.op, notice.rank, notice.fingerprint)) return;
  if (notice.kind == NoticeKind::kStalled && desync_.announce_once(notice.op))
    announce(NoticeKind::kArrived, notice.op, *ours);
}

// ---- Receives that are aborted

// See group.h. A send of this rank to itself is aborted only if it has not progressed for kGrace,
// since its receive may still be posted.
std::vector<std::string> Group::abort_receives(const Error& cause) {
  std::vector<std::string> out;
  const auto tell = [&](const std::shared_ptr<Op>& op, const OpExecution* run) {
    out.push_back(op->describe());
    finish(op, op_error(*op, run, rank(), config_.name, cause));
  };
  point_to_point_.abort_receives(tell);
  point_to_point_.abort_sends(
      [&](const OpExecution& run) {
        return run.peer() == rank() && now() - run.last_progress() >= LostPeerCheck::kGrace;
      },
      tell);
  if (!out.empty()) announce(NoticeKind::kReceivesAborted, /*number=*/0, {});
  return out;
}

// Fails only the sends to ranks that have aborted their receives a while ago. The group's other ops
// do not need them and go on.
void Group::check_refused_sends() {
  point_to_point_.abort_sends(
      [&](const OpExecution& run) {
        return peers_[run.peer()].aborted_receives_for(LostPeerCheck::kGrace, now()) &&
               now() - run.last_progress() >= LostPeerCheck::kGrace;
      },
      [&](const std::shared_ptr<Op>& op, const OpExecution* run) {
        const int to = op->request.envelope->peer;
        const Error cause(ErrorKind::kPeerLost,
                          peers_.describe_rank(to) + " receives nothing more: " +
                              std::string(kClosedByPeer) + "it destroys the group");
        finish(op, op_error(*op, run, rank(), config_.name, cause).blame(to));
      });
}

}  // namespace ringdist
