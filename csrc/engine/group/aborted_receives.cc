// Part of Group: aborts receives when this rank destroys the group, and sends to ranks that have
// aborted theirs.
#include "base/describe.h"
#include "engine/group/group.h"
#include "engine/group/op_error.h"

namespace ringdist {

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
