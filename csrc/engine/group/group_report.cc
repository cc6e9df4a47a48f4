#include "engine/group/group_report.h"

#include <utility>

namespace ringdist {

GroupReport::GroupReport(std::string name, const std::string& cost_source,
                         const ExecutionDelegate& delegate, const PeerTable& peers,
                         const WaitDiagnostics& waits, const Collectives& collectives,
                         const PointToPoint& point_to_point, const ServiceChannel& letters)
    : name_(std::move(name)),
      cost_source_(cost_source.empty() ? "" : ", plans by " + cost_source),
      delegate_(delegate),
      peers_(peers),
      waits_(waits),
      collectives_(collectives),
      point_to_point_(point_to_point),
      service_channel_(letters) {}

// The oldest collective that waits, that runs here and that runs on a device; sends and receives.
template <typename Each>
void GroupReport::for_each_watched(const Each& each) const {
  if (!collectives_.barriers().empty()) each(*collectives_.barriers().front(), nullptr);
  if (OpExecution* oldest = collectives_.oldest()) each(*oldest->op(), oldest);
  if (const auto& on_device = collectives_.on_device(); !on_device.empty())
    each(*on_device.begin()->second, nullptr);
  point_to_point_.for_each(
      [&](const std::shared_ptr<Op>& op, OpExecution* run) { each(*op, run); });
}

GroupStatus GroupReport::status(const Error& failure) const {
  if (failure) return {GroupStatus::kFailed, Duration(0), "failed: " + failure.message()};
  GroupStatus worst{GroupStatus::kIdle, Duration(0), "nothing in flight"};
  const auto add = [&](const GroupStatus& one) {
    if (one.more_severe_than(worst)) worst = one;
  };
  add(waits_.awaited_here(collectives_.last_called()));
  if (const auto [since, text] = service_channel_.waiting_for(); !text.empty())
    add({GroupStatus::kWaits, delegate_.progress.now - since, text});
  for_each_watched([&](const Op& op, const OpExecution* run) {
    add(waits_.status(op, run, delegate_.progress.now));
  });
  return worst;
}

void GroupReport::warn_of_waits(Duration after) const {
  SlowOpWarning warning(after, delegate_.progress.now);
  for_each_watched([&](Op& op, const OpExecution* run) {
    warning.look_at(op, run, [&] { return waits_.status(op, run, delegate_.progress.now).text; });
  });
  warning.log_for(peers_.rank(), name_);
}

std::string GroupReport::dump(const Error& failure) const {
  std::string out = "  group '" + name_ + "', rank " + std::to_string(peers_.rank()) + " of " +
                    std::to_string(peers_.size()) + peers_.links() + cost_source_ + ", last op #" +
                    std::to_string(collectives_.last_called()) + ": " + status(failure).text;
  out += collectives_.dump() + point_to_point_.dump() + service_channel_.dump();
  for (int peer = 0; peer < peers_.size(); ++peer) {
    const int64_t eager = delegate_.flow.eager[peer].outstanding();
    const size_t blocked = peers_[peer].blocked.size();
    if (eager > 0 || blocked > 0)
      out += "\n   to " + peers_.describe_rank(peer) + ": " + std::to_string(eager) +
             " bytes of early credit in use, " + std::to_string(blocked) + " steps wait for credit";
  }
  return out + collectives_.dump_unexpected() + "\n";
}

}  // namespace ringdist
