#include "engine/context/slow_link_detector.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

#include "base/json.h"

namespace ringdist {
namespace {

constexpr size_t kMostEdges = 4096;
// A link is compared only if it has this many bytes in a window, and this part of the bytes of the
// busiest one. Otherwise its messages may be too small to fill it.
constexpr uint64_t kLeastBytes = 1 << 20;
constexpr uint64_t kLeastPart = 4;  // a quarter
// Data are on their way over a slow link for this part of the window.
constexpr double kLeastBusy = 0.05;
constexpr uint64_t kLeastTime = 1000;  // microseconds; Linux may measure no shorter times
// The slow links are at most this many times as fast as the slowest one. The fastest one is at
// least so many times as fast. A link before a slow one is in between, as it has to wait.
constexpr double kSlowSpread = 1.5;
constexpr double kLeastRatio = 2;

std::string rate_text(double bytes_per_second) {
  std::array<char, 64> out{};
  std::snprintf(out.data(), out.size(), "%.3g Mbit/s", bytes_per_second * 8e-6);
  return out.data();
}

}  // namespace

void SlowLinkDetector::learn(uint64_t process, const CallSample& sample) {
  for (const LinkProgress& link : sample.links) {
    const Edge edge{link.local, link.remote};
    if (edges_.size() >= kMostEdges && !edges_.contains(edge))
      continue;  // any process can name some
    hosts_.emplace(link.local, sample.host);
    Traffic& traffic = edges_[edge];
    traffic.bytes += link.bytes;
    traffic.busy[process] += link.busy;
    traffic.resent += link.resent;
    traffic.rtt = std::max(traffic.rtt, link.rtt);
  }
}

// Connections of several processes are busy at the same time, so the longest time counts.
std::vector<SlowLinkDetector::Rate> SlowLinkDetector::rates() const {
  std::vector<Rate> out;
  uint64_t most = 0;
  for (const auto& [edge, traffic] : edges_) {
    if (!hosts_.contains(edge.second)) continue;  // it is no link of the job
    if (traffic.bytes < kLeastBytes) continue;
    uint64_t busy = kLeastTime;
    for (const auto& [process, time] : traffic.busy) busy = std::max(busy, time);
    most = std::max(most, traffic.bytes);
    out.push_back({static_cast<double>(traffic.bytes) / static_cast<double>(busy) * 1e6,
                   static_cast<double>(busy) / 1e6, &edge, &traffic});
  }
  std::erase_if(out, [&](const Rate& one) { return one.traffic->bytes < most / kLeastPart; });
  std::ranges::sort(out, {}, &Rate::bytes_per_second);
  return out;
}

std::optional<SlowLinkDetector::SlowLink> SlowLinkDetector::find() const {
  const std::vector<Rate> all = rates();
  if (all.empty() || all[0].busy < kLeastBusy * seconds(kWindow)) return std::nullopt;
  SlowLink out;
  out.rate = all[0].bytes_per_second;
  std::set<std::string> common{all[0].edge->first, all[0].edge->second};
  size_t slow = 0;
  for (; slow < all.size() && all[slow].bytes_per_second <= kSlowSpread * out.rate; ++slow) {
    const auto& [rate, busy, edge, traffic] = all[slow];
    std::erase_if(common, [edge = edge](const std::string& end) {
      return end != edge->first && end != edge->second;
    });
    out.resent += traffic->resent;
    out.rtt = std::max(out.rtt, traffic->rtt);
  }
  if (slow == all.size() || all.back().bytes_per_second < kLeastRatio * out.rate || common.empty())
    return std::nullopt;
  out.others = all[slow].bytes_per_second;
  const auto end_at = [this](const std::string& address) {
    return End{hosts_.at(address), address};
  };
  if (common.size() == 1) {
    out.from = end_at(*common.begin());
    return out;
  }
  // If it is slow both ways, either direction may be the slowest one in a window.
  const Edge reverse{all[0].edge->second, all[0].edge->first};
  const bool both_ways = std::any_of(all.begin(), all.begin() + static_cast<ptrdiff_t>(slow),
                                     [&](const Rate& one) { return *one.edge == reverse; });
  const Edge& edge = both_ways ? std::min(*all[0].edge, reverse) : *all[0].edge;
  out.from = end_at(edge.first);
  out.to = end_at(edge.second);
  return out;
}

std::vector<std::string> SlowLinkDetector::evaluate(TimePoint now) {
  if (now - window_began_ < kWindow) return {};
  past_.push_back(window_began_ == TimePoint() ? std::nullopt : find());
  window_began_ = now;
  hosts_.clear();
  edges_.clear();
  if (past_.size() > kWindows) past_.pop_front();
  const auto shows = [](const std::optional<SlowLink>& what) {
    return [&](const auto& window) { return window && what && window->same_place(*what); };
  };
  std::vector<std::string> out;
  if (named_ && !std::ranges::any_of(past_, shows(named_))) {
    out.push_back(named_->from.text() + (named_->to ? " to " + named_->to->text() : "") +
                  " is no longer slower than other links");
    named_.reset();
  }
  if (past_.size() < kWindows || !std::ranges::all_of(past_, shows(past_.back()))) return out;
  const bool is_new = !named_ || !named_->same_place(*past_.back());
  named_ = past_.back();
  if (is_new) out.push_back(named_->describe());
  return out;
}

std::string SlowLinkDetector::SlowLink::describe() const {
  const std::string what = to ? "data move from " + from.text() + " to " + to->text()
                              : "data move over the links of " + from.text();
  return "a slow link holds up the others: " + what + " at " + rate_text(rate) +
         ", and on the other links at " + rate_text(others) + " or more; " +
         std::to_string(resent) +
         " segments were sent again in 5 s: look at its cable, its port, or its limit";
}

std::string SlowLinkDetector::json() const {
  if (!named_) return "[]";
  const End to = named_->to.value_or(End());
  return json_array(std::vector<std::string>{JsonObject()
                                                 .add("host", named_->from.host)
                                                 .add("address", named_->from.address)
                                                 .add("to_host", to.host)
                                                 .add("to_address", to.address)
                                                 .add("rate", named_->rate)
                                                 .add("others", named_->others)
                                                 .add("resent", named_->resent)
                                                 .add("rtt", named_->rtt / 1e6)
                                                 .add("text", named_->describe())
                                                 .text()});
}

}  // namespace ringdist
