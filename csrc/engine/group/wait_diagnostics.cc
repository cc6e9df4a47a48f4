#include "engine/group/wait_diagnostics.h"

#include <array>
#include <cstdio>
#include <vector>

#include "base/log.h"

namespace ringdist {
namespace {

// Who has made progress within this time waits for nobody in particular.
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
                      const std::function<std::string()>& awaited) {
  const Duration waits = age(op, run, now);
  if (waits < kWaits)
    return {GroupStatus::kRuns, now - op.started,
            op.describe() + " runs since " + format_age(now - op.started)};
  return {GroupStatus::kWaits, waits,
          op.describe() + " has been waiting " + format_age(waits) + " for " + awaited()};
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

std::string WaitDiagnostics::awaited_data(const OpExecution& run) const {
  std::vector<int> sources;
  for (int peer = 0; peer < peers_.size(); ++peer)
    if (run.waits_for(peer)) sources.push_back(peer);
  if (sources.empty()) return "the other ranks to take what it sends";
  return "data from " + peers_.list(sources);
}

// "rank 1 (pid 4711 on host b), which has not called it (its last: #25)"
std::string WaitDiagnostics::awaited(const Op& op, const OpExecution* run) const {
  if (const auto& envelope = op.request.envelope) {
    const std::string other =
        envelope->peer < 0 ? "any rank" : peers_.describe_rank(envelope->peer);
    if (envelope->sends) return other + " to receive it";
    return run != nullptr ? awaited_data(*run) : other + " to send";
  }
  const std::vector<int> missing = desync_.missing(op.number);
  if (!missing.empty())
    return peers_.list(missing, [&](int peer) {
      return peers_.describe_rank(peer) + ", " + desync_.absence(peer, op.number, op.started);
    });
  if (op.request.device_stream)
    return "device " + std::to_string(op.request.device_stream->device) +
           ", though all ranks have called it";
  return run != nullptr ? awaited_data(*run) + ", though all ranks have called it" : "its turn";
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
  return {GroupStatus::kIsAwaited, Duration(0),
          "op #" + std::to_string(next) + ", " + call.describe() + ", has not been called here; " +
              peers_.list(ranks) + " waits in it"};
}

}  // namespace ringdist
