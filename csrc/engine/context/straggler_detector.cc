#include "engine/context/straggler_detector.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "base/describe.h"
#include "base/json.h"

namespace ringdist {
namespace {

constexpr size_t kMostOpen = 512;  // ops of a group that wait for calls of further ranks
// Larger groups are left out, and groups beyond the first ones: any process of a job can name some.
constexpr int kMostRanks = 1 << 14;
constexpr size_t kMostGroups = 64;
constexpr Duration kForgotten = std::chrono::minutes(2);  // a group without samples
constexpr int kLeastOps = 10;                             // a window with fewer does not count
// A rank is late if it calls this much later than the ones before it. The error of the clocks and
// this part of the mean time between ops are added.
constexpr Duration kLate = Milliseconds(2);
constexpr double kLatePart = 0.1;
// A conspicuous rank was late in this part of the ops, this many times as often as the others, and
// for this part of the time. A training step may have several ops.
constexpr double kShare = 0.02;
constexpr double kTimesOthers = 3;
constexpr int kMoreThanOthers = 3;
constexpr double kTimeLost = 0.03;
constexpr double kDrift = 100e-6;  // most by which two clocks move apart, in seconds per second

// Parts of the lateness, or of the time before the calls, from which on a cause counts.
constexpr double kMainPart = 0.5;
constexpr double kPausedPart = 0.15;
// Calls in time, per late call, from which on they are compared.
constexpr double kLeastUsual = 0.1;

// A cause as users see it.
struct CauseRow {
  LateCause cause;
  const char* name;  // in JSON
  const char* text;
};

// By value of LateCause.
constexpr std::array kCauses = {
    CauseRow{LateCause::kUnknown, "unknown", "the cause is not known"},
    CauseRow{LateCause::kStopped, "stopped",
             "its process stands still meanwhile: something stops it (SIGSTOP, a debugger, a "
             "frozen cgroup)"},
    CauseRow{LateCause::kElsewhere, "other_group",
             "it is in operations of another group meanwhile"},
    CauseRow{LateCause::kFaults, "major_faults",
             "its memory is read back from a disk (major page faults): the memory limit is too "
             "low"},
    CauseRow{LateCause::kDescheduled, "descheduled",
             "its threads wait for a core, which others use: are there more busy threads than "
             "cores?"},
    CauseRow{LateCause::kIdle, "idle",
             "its threads do not run meanwhile: does it load data, sleep or wait for a lock?"},
    CauseRow{LateCause::kComputes, "computes",
             "it computes longer: has it more work than the others, or a slower core?"},
};
static_assert(
    [] {
      for (size_t i = 0; i < kCauses.size(); ++i)
        if (kCauses[i].cause != static_cast<LateCause>(i)) return false;
      return kCauses.back().cause == LateCause::kComputes;
    }(),
    "a cause without a row, or in another order");

const CauseRow& row_of(LateCause cause) { return kCauses[static_cast<size_t>(cause)]; }

std::string format(const char* pattern, double value) {
  std::array<char, 64> out{};
  std::snprintf(out.data(), out.size(), pattern, value);
  return out.data();
}

Duration grown(Duration bound, Duration age, double factor) {
  return bound + Duration(static_cast<int64_t>(factor * kDrift * static_cast<double>(age.count())));
}

}  // namespace

// The other process has read its clock between the two times here. The interval of all such
// measurements is kept, widened by the drift.
StragglerDetector::RemoteClock& StragglerDetector::compare_clocks(uint64_t process, TimePoint there,
                                                                  TimePoint asked,
                                                                  TimePoint received) {
  RemoteClock& clock = clocks_[process];
  const Duration low = there - received, high = there - asked;
  const Duration age = received - clock.measured;
  const Duration old_low = grown(clock.low, age, -1), old_high = grown(clock.high, age, 1);
  const bool first = clock.measured == TimePoint();
  clock.low = first || low > old_high ? low : std::max(low, old_low);
  clock.high = first || high < old_low || low > old_high ? high : std::min(high, old_high);
  clock.measured = received;
  return clock;
}

void StragglerDetector::learn(uint64_t process, const CallSample& sample, TimePoint asked,
                              TimePoint received) {
  const bool first = !clocks_.contains(process);
  RemoteClock& clock = compare_clocks(process, sample.now, asked, received);
  const Duration paused = first ? Duration(0) : sample.paused - clock.paused;
  clock.paused = sample.paused;
  const Duration offset = (clock.low + clock.high) / 2, error = (clock.high - clock.low) / 2;
  for (const GroupCalls& from : sample.groups) {
    if (from.size < 2 || from.size > kMostRanks || from.rank < 0 || from.rank >= from.size ||
        (groups_.size() >= kMostGroups && !groups_.contains(from.id)))
      continue;
    WatchedGroup& group = groups_[from.id];
    if (group.places.empty()) {
      group.name = from.name;
      group.places.resize(static_cast<size_t>(from.size));
      group.window = {received, 0, 0, std::vector<RankWindow>(group.places.size())};
    }
    if (group.places.size() != static_cast<size_t>(from.size)) continue;
    const auto rank = static_cast<size_t>(from.rank);
    group.places[rank] = sample.place;
    group.heard = received;
    group.window.ranks[rank].paused += paused;
    for (const SampledCall& call : from.calls) {
      if (call.number <= group.last) continue;
      group.open[call.number][from.rank] = {call.began - offset, error, call};
    }
    while (group.open.size() > kMostOpen) group.open.erase(group.open.begin());
  }
}

void StragglerDetector::judge(WatchedGroup& group, uint64_t number, const OpCalls& calls) {
  std::vector<std::pair<TimePoint, int>> order;  // time of the call and rank
  Duration error{};
  for (const auto& [rank, call] : calls) {
    order.emplace_back(call.began, rank);
    error = std::max(error, call.error);
  }
  std::ranges::sort(order);
  const auto began = [&](size_t place) { return order[place].first; };
  const bool first_op = group.last == 0;
  const uint64_t step = first_op ? 1 : number - group.last;  // ops since the last one
  if (!first_op) {
    const double interval = seconds(began(0) - group.last_at) / static_cast<double>(step);
    constexpr double kWeight = 0.05;  // weight of the newest one
    group.interval += (group.interval == 0 ? 1 : kWeight) * (interval - group.interval);
  }
  group.window.numbers += step;
  group.last = number;
  group.last_at = began(0);
  const Duration limit = kLate + 2 * error +
                         std::chrono::duration_cast<Duration>(
                             std::chrono::duration<double>(kLatePart * group.interval));
  ++group.window.ops;
  // Up to a quarter of the ranks may be late together. `first` is the first late one.
  size_t first = order.size() - 1;
  while (first > 0 && began(first) - began(first - 1) <= limit) --first;
  if (order.size() - first > std::max<size_t>(1, order.size() / 4)) first = order.size();
  for (size_t i = 0; i < order.size(); ++i) {
    const Duration late = i < first ? Duration(0) : began(i) - began(first - 1);
    const int rank = order[i].second;
    group.window.ranks[static_cast<size_t>(rank)].add(behaviour(calls.at(rank).what, late));
  }
}

StragglerDetector::RankWindow StragglerDetector::behaviour(const SampledCall& call, Duration late) {
  RankWindow out;
  const bool is_late = late > Duration(0);
  out.late = is_late ? 1 : 0;
  out.lateness = late;
  const ThreadUsage& usage = call.usage;
  if (usage.elapsed == 0) return out;
  out.measured_lateness = late;
  out.other_group = is_late && call.elsewhere > 0 ? call.other_group : 0;
  (is_late ? out.before_late : out.before_in_time) = {1,
                                                      static_cast<double>(usage.elapsed),
                                                      static_cast<double>(usage.cpu),
                                                      static_cast<double>(usage.run_delay),
                                                      static_cast<double>(call.elsewhere),
                                                      static_cast<double>(usage.major_faults)};
  return out;
}

void StragglerDetector::UsageSum::add(const UsageSum& more) {
  calls += more.calls;
  elapsed += more.elapsed;
  cpu += more.cpu;
  run_delay += more.run_delay;
  elsewhere += more.elsewhere;
  faults += more.faults;
}

void StragglerDetector::RankWindow::add(const RankWindow& more) {
  late += more.late;
  lateness += more.lateness;
  measured_lateness += more.measured_lateness;
  paused += more.paused;
  before_late.add(more.before_late);
  before_in_time.add(more.before_in_time);
  if (more.other_group != 0) other_group = more.other_group;
}

std::vector<std::string> StragglerDetector::evaluate(TimePoint now) {
  std::vector<std::string> out;
  std::erase_if(groups_, [&](const auto& one) { return now - one.second.heard > kForgotten; });
  std::erase_if(clocks_, [&](const auto& one) { return now - one.second.measured > kForgotten; });
  for (auto& [id, group] : groups_) {
    const auto complete = [&](const auto& one) { return one.second.size() == group.places.size(); };
    // Not all ranks have sampled those before the first complete one.
    if (const auto first = std::ranges::find_if(group.open, complete); first != group.open.end())
      group.open.erase(group.open.begin(), first);
    for (auto it = group.open.begin(); it != group.open.end() && complete(*it);
         it = group.open.erase(it))
      judge(group, it->first, it->second);
    if (now - group.window.began < kWindow) continue;
    group.past.push_back(
        std::exchange(group.window, {now, 0, 0, std::vector<RankWindow>(group.places.size())}));
    if (group.past.size() > kWindows) group.past.pop_front();
    const auto found = straggler_of(group);
    if (found && (!group.named || group.named->rank != found->rank))
      out.push_back(describe(group, *found));
    if (!found && group.named)
      out.push_back("rank " + std::to_string(group.named->rank) + " of group '" + group.name +
                    "' is no longer late");
    group.named = found;
  }
  return out;
}

bool StragglerDetector::conspicuous(const Window& window, size_t rank) {
  if (window.ops < kLeastOps) return false;
  const int late = window.ranks[rank].late;
  const double sampled = window.ops / static_cast<double>(window.numbers);
  const double lost = seconds(window.ranks[rank].lateness) / sampled;
  int others = -late;
  for (const RankWindow& one : window.ranks) others += one.late;
  const double mean = others / static_cast<double>(window.ranks.size() - 1);
  return lost >= kTimeLost * seconds(kWindow) && late >= kShare * window.ops &&
         late >= kTimesOthers * mean + kMoreThanOthers;
}

// A rank that is named stays so while any of the windows shows it.
std::optional<StragglerDetector::Straggler> StragglerDetector::straggler_of(
    const WatchedGroup& group) {
  if (group.past.size() < kWindows) return std::nullopt;
  std::optional<Straggler> out;
  int most = 0;
  for (size_t rank = 0; rank < group.places.size(); ++rank) {
    const auto shows = [&](const Window& window) { return conspicuous(window, rank); };
    const bool is_named = group.named && group.named->rank == static_cast<int>(rank);
    if (is_named ? !std::ranges::any_of(group.past, shows)
                 : !std::ranges::all_of(group.past, shows))
      continue;
    RankWindow sum;
    int ops = 0;
    for (const Window& window : group.past) {
      ops += window.ops;
      sum.add(window.ranks[rank]);
    }
    if (sum.late <= most) continue;
    most = sum.late;
    out = Straggler{static_cast<int>(rank), sum.late / static_cast<double>(ops),
                    seconds(sum.lateness) / sum.late, cause_of(sum), sum.other_group};
  }
  return out;
}

// A time counts as far as it is longer than before the calls that were not late. A rank that is
// nearly always late has no such calls to compare with.
LateCause StragglerDetector::cause_of(const RankWindow& rank) {
  const UsageSum &late = rank.before_late, &in_time = rank.before_in_time;
  if (seconds(rank.paused) > kPausedPart * seconds(rank.lateness)) return LateCause::kStopped;
  if (late.calls == 0) return LateCause::kUnknown;
  const bool compares = in_time.calls >= kLeastUsual * late.calls;
  const auto more = [&](double UsageSum::* part) {  // for each late call
    return late.*part / late.calls - (compares ? in_time.*part / in_time.calls : 0);
  };
  const double main = kMainPart * seconds(rank.measured_lateness) * 1e6 / late.calls;
  const double run_delay = more(&UsageSum::run_delay);
  const double idle = more(&UsageSum::elapsed) - more(&UsageSum::cpu) - run_delay;
  if (more(&UsageSum::elsewhere) > main) return LateCause::kElsewhere;
  if (late.faults >= late.calls && idle > main) return LateCause::kFaults;
  if (run_delay > main) return LateCause::kDescheduled;
  return idle > main ? LateCause::kIdle : LateCause::kComputes;
}

std::string StragglerDetector::describe(const WatchedGroup& group, const Straggler& one) const {
  const auto other = groups_.find(one.other_group);
  const std::string in = one.cause == LateCause::kElsewhere && other != groups_.end()
                             ? " ('" + other->second.name + "')"
                             : "";
  return "rank " + std::to_string(one.rank) + " of group '" + group.name + "' (" +
         group.places[static_cast<size_t>(one.rank)] + ") holds up the others: it calls " +
         format("%.0f", 100 * one.share) + " % of the operations " +
         format("%.3g", 1000 * one.lateness) + " ms after them; " + row_of(one.cause).text + in;
}

std::string StragglerDetector::json() const {
  std::vector<std::string> out;
  for (const auto& [id, group] : groups_)
    if (const auto& one = group.named)
      out.push_back(JsonObject()
                        .add("group", format_id(id))
                        .add("rank", one->rank)
                        .add("share", one->share)
                        .add("late", one->lateness)
                        .add("cause", row_of(one->cause).name)
                        .add("text", describe(group, *one))
                        .text());
  return json_array(out);
}

}  // namespace ringdist
