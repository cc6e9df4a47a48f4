#include "control/fates.h"

#include "base/log.h"
#include "control/report.h"

namespace ringdist {

void DepartureHandler::learn_lost(uint64_t id, const std::string& cause,
                                  const ControlConnection* from) {
  if (!ledger_.record_lost(id, cause)) return;
  // The culprit is told as well: if it was only stopped it learns that it is out.
  gossip_.pass_on_lost(id, cause, from);
  settle(id);
}

void DepartureHandler::learn_left(uint64_t id, const ControlConnection* from) {
  if (id == id_ || !ledger_.record_left(id)) return;
  gossip_.pass_on_left(id, from);
  settle(id);
}

void DepartureHandler::settle(uint64_t id) {
  pace_.hurry();
  tell_owner();
  if (id != id_) needs_.drop(id);
  ledger_.forget_old([this](uint64_t one) { return one == id_ || needs_.needed(one); });
}

void DepartureHandler::tell_owner() {
  guard_("a death or a departure was not taken in", [this] {
    while (const auto id = ledger_.untold()) {
      const auto cause = ledger_.lost(*id);
      log(LogLevel::kDebug,
          name_of(*id, groups_, processes_) + (cause ? " is lost: " + *cause : " has left"));
      if (cause)
        events_.on_process_lost(*id, Error(ErrorKind::kPeerLost, *cause));
      else
        events_.on_process_left(*id);
      ledger_.told(*id);
    }
  });
}

}  // namespace ringdist
