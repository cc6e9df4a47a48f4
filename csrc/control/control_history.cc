#include "control/control_history.h"

#include <cstdio>
#include <utility>

#include "base/describe.h"

namespace ringdist {
namespace {

constexpr size_t kSequenceWindow = 1024;  // sequence numbers per origin that are tracked singly
constexpr size_t kMostOrigins = 65536;    // processes with notices
constexpr size_t kMaxDepartures = 1024;   // departures
constexpr size_t kMaxCause = 1024;        // bytes
constexpr size_t kMaxDepartureBytes = size_t{1} << 20;  // departures sent to one new connection
constexpr size_t kMaxKept = 256;                        // floods
constexpr size_t kMaxKeptBytes = size_t{1} << 20;
constexpr Duration kKeepFor = std::chrono::seconds(60);

}  // namespace

bool ControlHistory::record(uint64_t context_id, bool is_lost, const std::string& cause) {
  if (departed(context_id)) return false;
  by_age_.emplace(next_order_++, context_id);
  departures_.emplace(context_id, KnownDeparture{is_lost, cause.substr(0, kMaxCause)});
  return true;
}

bool ControlHistory::record_lost(uint64_t context_id, const std::string& cause) {
  return record(context_id, true, cause);
}

bool ControlHistory::record_left(uint64_t context_id) { return record(context_id, false, ""); }

void ControlHistory::forget_old(const std::function<bool(uint64_t)>& needed) {
  for (auto it = by_age_.begin(); it != by_age_.end() && departures_.size() > kMaxDepartures;) {
    if (needed(it->second)) {
      ++it;
      continue;
    }
    departures_.erase(it->second);
    seen_.erase(it->second);
    it = by_age_.erase(it);
  }
}

std::optional<std::string> ControlHistory::lost(uint64_t context_id) const {
  auto found = departures_.find(context_id);
  if (found == departures_.end() || !found->second.is_lost) return std::nullopt;
  return found->second.cause;
}

bool ControlHistory::record_flood(const FloodRecord& flood, TimePoint now) {
  // Records of the last minute are kept, because copies of their floods may still be under way.
  if (!seen_.contains(flood.origin) && seen_.size() >= kMostOrigins) {
    std::erase_if(seen_, [&](const auto& one) { return now - one.second.heard_at > kKeepFor; });
    if (seen_.size() >= kMostOrigins) return false;
  }
  Seen& seen = seen_[flood.origin];
  seen.heard_at = now;
  if (flood.sequence < seen.floor) return false;
  if (!seen.above.insert(flood.sequence).second) return false;
  keep(flood.frame(), now);
  // Raises the floor over consecutive numbers, and over gaps if too many numbers are tracked. A
  // flood in such a gap would count as seen.
  while (seen.above.size() > kSequenceWindow ||
         (!seen.above.empty() && *seen.above.begin() == seen.floor)) {
    seen.floor = *seen.above.begin() + 1;
    seen.above.erase(seen.above.begin());
  }
  return true;
}

bool ControlHistory::has_flood(uint64_t origin, uint64_t sequence) const {
  const auto found = seen_.find(origin);
  return found != seen_.end() &&
         (sequence < found->second.floor || found->second.above.contains(sequence));
}

void ControlHistory::keep(std::vector<std::byte> frame, TimePoint now) {
  kept_.push_back({now, std::move(frame)});
  kept_bytes_ += kept_.back().frame.size();
  while (kept_.size() > kMaxKept || kept_bytes_ > kMaxKeptBytes ||
         (!kept_.empty() && now - kept_.front().at > kKeepFor)) {
    kept_bytes_ -= kept_.front().frame.size();
    kept_.pop_front();
  }
}

// Departures come first, the newest one first, until their bytes exceed the limit.
std::vector<std::vector<std::byte>> ControlHistory::frames(TimePoint now) const {
  std::vector<std::vector<std::byte>> out;
  size_t bytes = 0;
  for (auto it = by_age_.rbegin(); it != by_age_.rend() && bytes < kMaxDepartureBytes; ++it) {
    const KnownDeparture& known = departures_.at(it->second);
    out.push_back(PeerDeparture{it->second, known.cause}.frame(known.is_lost ? FrameType::kLost
                                                                             : FrameType::kLeft));
    bytes += out.back().size();
  }
  for (const Kept& kept : kept_)
    if (now - kept.at <= kKeepFor) out.push_back(kept.frame);
  return out;
}

std::string ControlHistory::describe() const {
  std::string out;
  for (const auto& [id, known] : departures_)
    out += "  " + format_id(id) + (known.is_lost ? " lost: " + known.cause : " left") + "\n";
  return out;
}

}  // namespace ringdist
