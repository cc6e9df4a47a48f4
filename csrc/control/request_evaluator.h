// What those hear who ask the control plane and wait: whether a process shares our host, whether a
// group is linked, whether all of it is. No answer yet: nothing. Control thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "control/connection_view.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"
#include "control/formation_barrier.h"

namespace ringdist {

class RequestEvaluator {
 public:
  // `id`: this process.
  RequestEvaluator(uint64_t id, ControlPeerTable& processes, const ControlHistory& ledger,
                   const FormationBarrier& arrivals, const ConnectionView& reach)
      : id_(id),
        processes_(processes),
        history_(ledger),
        formation_barrier_(arrivals),
        connections_view_(reach) {}

  // Success once the process has answered on its abstract socket. `who`: its name.
  std::optional<Error> proof(uint64_t id, const std::string& who, bool expired);
  // Success once all links that the group needs of this process are up.
  std::optional<Error> links(uint64_t nonce, const ControlGroup& group, bool expired);
  // Success once all members have connected, but for those that have left: of these the engine
  // tells.
  std::optional<Error> formed(uint64_t nonce, const ControlGroup& group, bool expired) const;

 private:
  std::optional<Error> missing(const ControlGroup& group, uint64_t id, LinkKind kind, bool expired);

  const uint64_t id_;
  ControlPeerTable& processes_;
  const ControlHistory& history_;
  const FormationBarrier& formation_barrier_;
  const ConnectionView& connections_view_;
};

}  // namespace ringdist
