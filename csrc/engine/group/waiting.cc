// What a Group's ops wait for, in words: for `dump`, and for a warning when it takes long.
#include <algorithm>
#include <array>
#include <cstdio>

#include "base/log.h"
#include "engine/group/group.h"

namespace ringdist {
namespace {

// Who has made progress within this time waits for nobody in particular.
constexpr Duration kWaits = std::chrono::seconds(1);
constexpr int kNamed = 4;  // ranks in a line

std::string format_age(Duration age) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", seconds(age));
  return text.data();
}

// The first few of the ranks, each as `name` puts it.
template <typename Name>
std::string list(const std::vector<int>& ranks, const Name& name) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(ranks.size(), kNamed); ++i)
    out += (out.empty() ? "" : ", ") + name(ranks[i]);
  if (ranks.size() > kNamed) out += " and " + std::to_string(ranks.size() - kNamed) + " more";
  return out;
}

}  // namespace

// A rank from which the roll call of an op has brought no "I have called it".
std::string Group::absent(const Op& op, int peer) const {
  const Peer& p = peers_[peer];
  if (p.absent_at < op.started || p.called >= op.number)
    return who(peer) + ", which does not say whether it has called it";
  return who(peer) + ", which has not called it (" +
         (p.called == 0 ? "it has called none" : "its last: #" + std::to_string(p.called)) + ")";
}

std::string Group::awaited_data(const Run& run) const {
  std::vector<int> sources;
  for (int peer = 0; peer < size(); ++peer)
    if (run.waits_for(peer)) sources.push_back(peer);
  if (sources.empty()) return "the other ranks to take what it sends";
  return "data from " + list(sources, [this](int peer) { return who(peer); });
}

// "rank 1 (pid 4711 on host b), which has not called it (its last: #25)"
std::string Group::awaited(const Op& op, const Run* run) const {
  if (!ready()) return "the group's members to be found";
  if (const auto& endpoint = op.request.endpoint) {
    const std::string other = endpoint->peer < 0 ? "any rank" : who(endpoint->peer);
    if (endpoint->sends) return other + " to receive it";
    return run != nullptr ? awaited_data(*run) : other + " to send";
  }
  std::vector<int> missing;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() && !history_.heard_of(op.number).contains(peer)) missing.push_back(peer);
  if (!missing.empty()) return list(missing, [&](int peer) { return absent(op, peer); });
  return run != nullptr ? awaited_data(*run) + ", though all ranks have called it" : "its turn";
}

GroupVerdict Group::verdict_of(const Op& op, const Run* run) const {
  const Duration waits = now() - (run != nullptr ? run->last_progress() : op.started);
  if (waits < kWaits)
    return {GroupVerdict::kRuns, now() - op.started,
            op.describe() + " runs since " + format_age(now() - op.started)};
  return {GroupVerdict::kWaits, waits,
          op.describe() + " has been waiting " + format_age(waits) + " for " + awaited(op, run)};
}

GroupVerdict Group::verdict() const {
  if (failure_) return {GroupVerdict::kFailed, Duration(0), "failed: " + failure_.message()};
  GroupVerdict worst{GroupVerdict::kIdle, Duration(0),
                     ready() ? "nothing in flight" : "looks for its members"};
  const auto add = [&](const GroupVerdict& one) {
    if (std::pair(one.rank, one.age) > std::pair(worst.rank, worst.age)) worst = one;
  };
  if (const uint64_t next = history_.heard_after(last_number_); next != 0) {
    std::vector<int> ranks;
    for (const auto& [peer, theirs] : history_.heard_of(next)) ranks.push_back(peer);
    const auto& call = history_.heard_of(next).begin()->second;
    add({GroupVerdict::kIsAwaited, Duration(0),
         "op #" + std::to_string(next) + ", " + call.describe() + ", has not been called here; " +
             list(ranks, [this](int peer) { return who(peer); }) + " waits in it"});
  }
  if (!waiting_.empty()) add(verdict_of(*waiting_.front(), nullptr));
  if (!runs_.empty()) add(verdict_of(*runs_.begin()->second->op(), runs_.begin()->second.get()));
  point_to_point_.for_each(
      [&](const std::shared_ptr<Op>& op, const Run* run) { add(verdict_of(*op, run)); });
  return worst;
}

// Once for each op; of those that have got late at the same time, for the first.
void Group::warn_of_waits() {
  if (config_.warn_after == Duration(0)) return;
  std::string text;
  const auto look_at = [&](Op& op, const Run* run) {
    const Duration waits = now() - (run != nullptr ? run->last_progress() : op.started);
    if (op.warned || waits < config_.warn_after) return;
    op.warned = true;
    if (text.empty()) text = verdict_of(op, run).text;
  };
  if (!waiting_.empty()) look_at(*waiting_.front(), nullptr);
  if (!runs_.empty()) look_at(*runs_.begin()->second->op(), runs_.begin()->second.get());
  point_to_point_.for_each(
      [&](const std::shared_ptr<Op>& op, const Run* run) { look_at(*op, run); });
  if (text.empty()) return;
  log(LogLevel::kWarn,
      "rank " + std::to_string(rank()) + " of group '" + config_.name + "': " + text);
}

void Group::answer_absent(uint64_t number) {
  if (number <= told_absent_) return;
  told_absent_ = number;
  announce(NoticeKind::kAbsent, last_number_, {});
}

}  // namespace ringdist
