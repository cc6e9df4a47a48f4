#include "engine/context/slow_link_detector.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

#include "base/json.h"

namespace ringdist {
namespace {

constexpr size_t kMostEdges = 4096;
// A link with less data in a window, or with data on their way for a smaller part of it, is not
// judged.
constexpr uint64_t kLeastBytes = 1 << 20;
constexpr double kLeastBusy = 0.05;
// The slow links are those that are at most this many times as fast as the slowest one. The fastest
// one is at least so many times as fast. A link before a slow one is in between, as it has to wait.
constexpr double kAlike = 1.5;
constexpr double kFaster = 2;

std::string rate_text(double bytes_per_second) {
  std::array<char, 64> out{};
  std::snprintf(out.data(), out.size(), "%.3g Mbit/s", bytes_per_second * 8e-6);
  return out.data();
}

}  // namespace

void SlowLinkDetector::learn(uint64_t process, const CallSample& sample) {
  for (const LinkProgress& link : sample.links) {
    const Edge edge{link.local, link.remote};
    if ((edges_.size() >= kMostEdges && !edges_.contains(edge)) ||
        (hosts_.size() >= kMostEdges && !hosts_.contains(link.local)))
      continue;  // any process can name some
    hosts_[link.local] = sample.host;
    Traffic& traffic = edges_[edge];
    traffic.bytes += link.bytes;
    traffic.busy[process] += link.busy;
    traffic.resent += link.resent;
    traffic.rtt = std::max(traffic.rtt, link.rtt);
  }
}

// Connections of several processes are busy at the same time, so the longest time counts.
std::optional<SlowLinkDetector::SlowLink> SlowLinkDetector::find() const {
  std::vector<std::pair<double, const std::pair<const Edge, Traffic>*>> rates;
  for (const auto& entry : edges_) {
    const Traffic& traffic = entry.second;
    uint64_t busy = 0;
    for (const auto& [process, time] : traffic.busy) busy = std::max(busy, time);
    const double busy_seconds = static_cast<double>(busy) / 1e6;
    if (traffic.bytes >= kLeastBytes && busy_seconds >= kLeastBusy * seconds(kWindow))
      rates.emplace_back(static_cast<double>(traffic.bytes) / busy_seconds, &entry);
  }
  if (rates.size() < 2) return std::nullopt;
  std::ranges::sort(rates);
  SlowLink out;
  out.rate = rates[0].first;
  std::set<std::string> common;
  size_t slow = 0;
  for (; slow < rates.size() && rates[slow].first <= kAlike * out.rate; ++slow) {
    const auto& [edge, traffic] = *rates[slow].second;
    const std::set<std::string> ends{edge.first, edge.second};
    if (slow == 0) common = ends;
    std::erase_if(common, [&](const std::string& end) { return !ends.contains(end); });
    out.resent += traffic.resent;
    out.rtt = std::max(out.rtt, traffic.rtt);
  }
  if (slow == rates.size() || rates.back().first < kFaster * out.rate || common.empty())
    return std::nullopt;
  out.others = rates[slow].first;
  const Edge& slowest = rates[0].second->first;
  const bool is_host = common.size() == 1;
  out.from = is_host ? *common.begin() : slowest.first;
  out.to = is_host ? "" : slowest.second;
  return out;
}

std::vector<std::string> SlowLinkDetector::evaluate(TimePoint now) {
  if (now - window_began_ < kWindow) return {};
  past_.push_back(window_began_ == TimePoint() ? std::nullopt : find());
  window_began_ = now;
  edges_.clear();
  if (past_.size() > kWindows) past_.pop_front();
  const auto shows = [](const std::optional<SlowLink>& what) {
    return [&](const auto& window) { return window && what && window->same_place(*what); };
  };
  std::vector<std::string> out;
  if (named_ && !std::ranges::any_of(past_, shows(named_))) {
    out.push_back(place(named_->from) + (named_->to.empty() ? "" : " to " + place(named_->to)) +
                  " is no longer slower than other links");
    named_.reset();
    hosts_.clear();
  }
  if (past_.size() < kWindows || !std::ranges::all_of(past_, shows(past_.back()))) return out;
  const bool is_new = !named_ || !named_->same_place(*past_.back());
  named_ = past_.back();
  if (is_new) out.push_back(describe(*named_));
  return out;
}

std::string SlowLinkDetector::place(const std::string& address) const {
  const auto found = hosts_.find(address);
  return found == hosts_.end() ? address : "host " + found->second + " (" + address + ")";
}

std::string SlowLinkDetector::describe(const SlowLink& one) const {
  const std::string what = one.to.empty()
                               ? "data move over the links of " + place(one.from)
                               : "data move from " + place(one.from) + " to " + place(one.to);
  return "a slow link holds up the others: " + what + " at " + rate_text(one.rate) +
         ", and on the other links at " + rate_text(one.others) + " or more; " +
         std::to_string(one.resent) +
         " segments were sent again in 5 s: look at its cable, its port, or its limit";
}

std::string SlowLinkDetector::json() const {
  if (!named_) return "[]";
  const auto host = [this](const std::string& address) {
    const auto found = hosts_.find(address);
    return found == hosts_.end() ? std::string() : found->second;
  };
  return json_array(std::vector<std::string>{JsonObject()
                                                 .add("host", host(named_->from))
                                                 .add("address", named_->from)
                                                 .add("to_host", host(named_->to))
                                                 .add("to_address", named_->to)
                                                 .add("rate", named_->rate)
                                                 .add("others", named_->others)
                                                 .add("resent", named_->resent)
                                                 .add("rtt", named_->rtt / 1e6)
                                                 .add("text", describe(*named_))
                                                 .text()});
}

}  // namespace ringdist
