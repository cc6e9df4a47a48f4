#include "control/departure_handler.h"

#include "base/log.h"
#include "control/control_report.h"

namespace ringdist {

void DepartureHandler::learn_lost(uint64_t id, const std::string& cause,
                                  const ControlConnection* from) {
  if (!history_.record_lost(id, cause)) return;
  // The culprit is told as well: if it was only stopped it learns that it is out.
  gossip_.pass_on_lost(id, cause, from);
  process_departure(id);
}

void DepartureHandler::learn_left(uint64_t id, const ControlConnection* from) {
  if (id == id_ || !history_.record_left(id)) return;
  gossip_.pass_on_left(id, from);
  process_departure(id);
}

void DepartureHandler::process_departure(uint64_t id) {
  timer_.hurry();
  report_departures();
  if (id != id_) demand_.drop(id);
  history_.forget_old([this](uint64_t one) { return one == id_ || demand_.needed(one); });
}

void DepartureHandler::report_departures() {
  guard_("a death or a departure was not taken in", [this] {
    while (const auto id = history_.unreported()) {
      const auto cause = history_.lost(*id);
      log(LogLevel::kDebug,
          name_of(*id, groups_, processes_) + (cause ? " is lost: " + *cause : " has left"));
      if (cause)
        events_.on_process_lost(*id, Error(ErrorKind::kPeerLost, *cause));
      else
        events_.on_process_left(*id);
      history_.told(*id);
    }
  });
}

}  // namespace ringdist
