#include "engine/group/group_report.h"

#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/log.h"

namespace ringdist {
namespace {

// An op that has progressed within this time counts as running, not as waiting.
constexpr Duration kWaits = std::chrono::seconds(1);

std::string format_age(Duration age) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", seconds(age));
  return text.data();
}

}  // namespace

Duration age(const Op& op, const OpExecution* run, TimePoint now) {
  return now - (run != nullptr ? run->last_progress() : op.started);
}

GroupStatus status_of(const Op& op, const OpExecution* run, TimePoint now,
                      const std::function<Awaited()>& awaited) {
  const Duration waits = age(op, run, now);
  const std::string call = op.describe();
  if (waits < kWaits)
    return {GroupStatus::kRuns, now - op.started,
            call + " runs since " + format_age(now - op.started), op.number, call};
  const Awaited what = awaited();
  return {GroupStatus::kWaits,
          waits,
          call + " has been waiting " + format_age(waits) + " for " + what.text,
          op.number,
          call,
          what.ranks};
}

std::string timed_out(const Op& op, int rank, TimePoint now) {
  const auto waited = std::chrono::duration_cast<Milliseconds>(now - op.started);
  return "Timed out waiting " + std::to_string(waited.count()) + " ms for " +
         (op.request.envelope ? op.describe() : "op #" + std::to_string(op.number)) + " on rank " +
         std::to_string(rank);
}

void SlowOpWarning::look_at(Op& op, const OpExecution* run,
                            const std::function<std::string()>& text) {
  if (after_ == Duration(0) || op.warned || age(op, run, now_) < after_) return;
  op.warned = true;
  if (text_.empty()) text_ = text();
}

void SlowOpWarning::log_for(int rank, const std::string& group) const {
  if (text_.empty()) return;
  log(LogLevel::kWarn, "rank " + std::to_string(rank) + " of group '" + group + "': " + text_);
}

Awaited WaitDiagnostics::awaited_data(const OpExecution& run) const {
  std::vector<int> sources;
  for (int peer = 0; peer < peers_.size(); ++peer)
    if (run.waits_for(peer)) sources.push_back(peer);
  if (sources.empty()) return {"the other ranks to take what it sends"};
  return {"data from " + peers_.list(sources), sources};
}

// The result reads like "rank 1 (pid 4711 on host b), which has not called it (its last: #25)".
Awaited WaitDiagnostics::awaited(const Op& op, const OpExecution* run) const {
  if (const auto& envelope = op.request.envelope) {
    const bool any = envelope->peer < 0;
    const std::string other = any ? "any rank" : peers_.describe_rank(envelope->peer);
    const std::vector<int> ranks = any ? std::vector<int>() : std::vector<int>{envelope->peer};
    if (envelope->sends) return {other + " to receive it", ranks};
    return run != nullptr ? awaited_data(*run) : Awaited{other + " to send", ranks};
  }
  const std::vector<int> missing = desync_.missing(op.number);
  if (!missing.empty())
    return {peers_.list(missing,
                        [&](int peer) {
                          return peers_.describe_rank(peer) + ", " +
                                 desync_.absence(peer, op.number, op.started);
                        }),
            missing};
  if (op.request.device_stream)
    return {"device " + std::to_string(op.request.device_stream->device) +
            ", though all ranks have called it"};
  if (run == nullptr) return {"its turn"};
  Awaited data = awaited_data(*run);
  data.text += ", though all ranks have called it";
  return data;
}

GroupStatus WaitDiagnostics::status(const Op& op, const OpExecution* run, TimePoint now) const {
  return status_of(op, run, now, [&] { return awaited(op, run); });
}

Error WaitDiagnostics::timed_out(const Op& op, TimePoint now) const {
  std::string text = ringdist::timed_out(op, peers_.rank(), now);
  std::vector<int> missing;
  if (op.request.envelope && op.source() < 0 && !op.request.device_stream)
    text += op.request.envelope->sends ? ": it has not been received" : ": nothing has been sent";
  else if (op.request.envelope)
    text += ": it does not progress";
  else if (missing = desync_.missing(op.number); missing.empty())
    text += ": all ranks have called it, but it does not progress";
  else
    text += ": no sign that it was called by ";
  for (size_t i = 0; i < missing.size(); ++i)
    text += (i > 0 ? ", " : "") + peers_.describe_rank(missing[i]);
  return Error(ErrorKind::kTimeout, text).blame(std::move(missing));
}

GroupStatus WaitDiagnostics::awaited_here(uint64_t last) const {
  const uint64_t next = desync_.next_peer_call(last);
  if (next == 0) return {};
  std::vector<int> ranks;
  for (const auto& [peer, theirs] : desync_.peer_calls(next)) ranks.push_back(peer);
  const auto& call = desync_.peer_calls(next).begin()->second;
  return {GroupStatus::kIsAwaited,
          Duration(0),
          "op #" + std::to_string(next) + ", " + call.describe() + ", has not been called here; " +
              peers_.list(ranks) + " waits in it",
          next,
          call.describe(),
          ranks};
}

GroupReport::GroupReport(std::string name, const std::string& cost_source,
                         const ExecutionDelegate& delegate, const PeerTable& peers,
                         const WaitDiagnostics& waits, const Collectives& collectives,
                         const PointToPoint& point_to_point, const ServiceChannel& service_channel)
    : name_(std::move(name)),
      cost_source_(cost_source.empty() ? "" : ", plans by " + cost_source),
      delegate_(delegate),
      peers_(peers),
      waits_(waits),
      collectives_(collectives),
      point_to_point_(point_to_point),
      service_channel_(service_channel) {}

// These are the oldest kept barrier, the oldest collective here, the oldest on a device, and all
// sends and receives.
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
             " bytes of eager credit in use, " + std::to_string(blocked) + " steps wait for credit";
  }
  return out + collectives_.dump_unexpected() + "\n";
}

}  // namespace ringdist
