// A Group whose receives, or those of a peer, are aborted because their rank destroys it.
#include "base/describe.h"
#include "engine/group/group.h"
#include "engine/group/op_error.h"

namespace ringdist {

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

// Ends those sends alone: the group's other ops do not lack them.
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
