#include "control/ledger.h"

#include <array>
#include <cstdio>

namespace ringdist {
namespace {

constexpr size_t kSequenceWindow = 1024;
constexpr size_t kMaxFates = 1024;
constexpr size_t kMaxCause = 1024;
constexpr size_t kMaxFateBytes = size_t{1} << 20;  // told to one connection
constexpr size_t kMaxKept = 256;
constexpr size_t kMaxKeptBytes = size_t{1} << 20;
constexpr Duration kKeepFor = std::chrono::seconds(60);

}  // namespace

std::string format_id(uint64_t id) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(id));
  return text.data();
}

bool ControlLedger::record(uint64_t context_id, bool is_lost, const std::string& cause) {
  Known known{is_lost, cause.substr(0, kMaxCause), next_order_};
  if (!fates_.emplace(context_id, std::move(known)).second) return false;
  by_age_[next_order_++] = context_id;
  return true;
}

bool ControlLedger::record_lost(uint64_t context_id, const std::string& cause) {
  return record(context_id, true, cause);
}

bool ControlLedger::record_left(uint64_t context_id) { return record(context_id, false, ""); }

void ControlLedger::forget_old(const std::function<bool(uint64_t)>& needed) {
  for (auto it = by_age_.begin(); it != by_age_.end() && fates_.size() > kMaxFates;) {
    if (needed(it->second)) {
      ++it;
      continue;
    }
    fates_.erase(it->second);
    seen_.erase(it->second);
    it = by_age_.erase(it);
  }
}

std::optional<std::string> ControlLedger::lost(uint64_t context_id) const {
  auto found = fates_.find(context_id);
  if (found == fates_.end() || !found->second.is_lost) return std::nullopt;
  return found->second.cause;
}

bool ControlLedger::record_flood(const FloodRecord& flood, TimePoint now) {
  Seen& seen = seen_[flood.origin];
  if (flood.sequence < seen.floor || !seen.above.insert(flood.sequence).second) return false;
  while (seen.above.size() > kSequenceWindow ||
         (!seen.above.empty() && *seen.above.begin() == seen.floor)) {
    seen.floor = *seen.above.begin() + 1;
    seen.above.erase(seen.above.begin());
  }
  keep(flood.frame(), now);
  return true;
}

void ControlLedger::keep(std::vector<std::byte> frame, TimePoint now) {
  kept_bytes_ += frame.size();
  kept_.push_back({now, std::move(frame)});
  while (kept_.size() > kMaxKept || kept_bytes_ > kMaxKeptBytes ||
         (!kept_.empty() && now - kept_.front().at > kKeepFor)) {
    kept_bytes_ -= kept_.front().frame.size();
    kept_.pop_front();
  }
}

std::vector<std::vector<std::byte>> ControlLedger::frames(TimePoint now) const {
  std::vector<std::vector<std::byte>> out;
  size_t bytes = 0;
  for (auto it = by_age_.rbegin(); it != by_age_.rend() && bytes < kMaxFateBytes; ++it) {
    const Known& known = fates_.at(it->second);
    out.push_back(
        Fate{it->second, known.cause}.frame(known.is_lost ? FrameType::kLost : FrameType::kLeft));
    bytes += out.back().size();
  }
  for (const Kept& kept : kept_)
    if (now - kept.at <= kKeepFor) out.push_back(kept.frame);
  return out;
}

std::string ControlLedger::describe() const {
  std::string out;
  for (const auto& [id, known] : fates_)
    out += "  " + format_id(id) + (known.is_lost ? " lost: " + known.cause : " left") + "\n";
  return out;
}

}  // namespace ringdist
