#include "control/snapshot_relay.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/describe.h"
#include "base/json.h"
#include "os/host.h"
#include "os/pidfd.h"

namespace ringdist {
namespace {

constexpr size_t kMostClients = 8;
constexpr uint8_t kDetails = kWithOps | kWithStatistics | kWithStack;
constexpr Duration kSampleInterval = std::chrono::seconds(1);
constexpr Duration kFast = Milliseconds(5);  // a state that is made in this time is made each time
// A search is recognized for this time, longer than its copies can be on their way. Without that,
// members would pass copies on to each other for ever.
constexpr Duration kRecognized = std::chrono::seconds(10);
constexpr size_t kMostSearches = 256;  // recognized at once

}  // namespace

// This process answers last, since that may take a while.
void SnapshotRelay::begin(ControlConnection& client, uint8_t request, TimePoint now) {
  if (collections_.size() >= kMostClients) return sender_.close_after_output(client);
  const uint8_t details = request & kDetails;
  Collection& collection =
      collections_.emplace_back(Collection{{id_, ++count_}, client.key, {}, {}, now});
  if ((request & kWholeJob) != 0) collection.expected = members();
  if (!collection.expected.empty()) pass_on({collection.id, details}, nullptr);
  for (const uint64_t process : stopped_here()) collection.stopped.insert(process);
  sender_.send(client, make_frame(FrameType::kSnapshot, state_here(details)));
  if (end_if_complete(collection, /*late=*/false, now)) collections_.pop_back();
}

std::set<uint64_t> SnapshotRelay::members() const {
  std::set<uint64_t> out;
  for (const auto& [nonce, group] : groups_.all())
    for (const auto& [process, member] : group.roster.processes())
      if (!group.left() && process != id_) out.insert(process);
  return out;
}

bool SnapshotRelay::compares_calls() const {
  const ControlGroup* largest = nullptr;
  for (const auto& [nonce, group] : groups_.all())
    if (group.formed && !group.left() &&
        (largest == nullptr ||
         group.roster.processes().size() > largest->roster.processes().size()))
      largest = &group;
  return largest != nullptr && largest->roster.processes().size() > 1 &&
         largest->roster.self().rank == 0;
}

void SnapshotRelay::sample_calls(Duration paused, TimePoint now) {
  if (now - sampled_at_ < kSampleInterval) return;
  sampled_at_ = now;
  const uint64_t activity = owner_.activity();
  if (activity == std::exchange(activity_, activity) || !compares_calls()) return;
  if (collections_.size() >= kMostClients ||
      std::ranges::any_of(collections_, [](const auto& one) { return !one.client; }))
    return;
  collections_.push_back({{id_, ++count_}, std::nullopt, members(), {}, now});
  pass_on({collections_.back().id, kCalls}, nullptr);
  const std::string sample = owner_.sample_calls(paused);
  owner_.on_calls(id_, std::as_bytes(std::span(sample)), now, Clock::now());
  if (end_if_complete(collections_.back(), /*late=*/false, now)) collections_.pop_back();
}

void SnapshotRelay::on_search(ControlConnection& from, const Frame& frame, Duration paused,
                              TimePoint now) {
  while (!seen_.empty() && now - seen_.front().first > kRecognized) {
    reverse_paths_.erase(seen_.front().second);
    seen_.pop_front();
  }
  const auto search = SnapshotSearch::decode(frame.body);
  if (!search || search->id.origin == id_ || !groups_.has(from.peer) ||
      seen_.size() >= kMostSearches || reverse_paths_.contains(search->id))
    return;
  reverse_paths_[search->id] = from.key;
  seen_.emplace_back(now, search->id);
  pass_on(*search, &from);
  SnapshotAnswer answer{search->id, id_, {}, {}};
  if ((search->request & kCalls) != 0) {
    answer.json = owner_.sample_calls(paused);
  } else {
    answer.json = state_here(search->request & kDetails);
    answer.stopped = stopped_here();
  }
  sender_.send(from, answer.frame());
}

std::string SnapshotRelay::state_here(uint8_t request) {
  const TimePoint began = Clock::now();
  const bool valid = began < state_valid_until_;
  if (valid && (request & ~state_request_) == 0) return state_;
  state_request_ = valid ? state_request_ | request : request;
  state_ = owner_.snapshot(state_request_);
  const TimePoint ended = Clock::now();
  state_valid_until_ = ended - began < kFast ? ended : ended + 2 * (ended - began);
  return state_;
}

void SnapshotRelay::on_answer(const Frame& frame, TimePoint now) {
  const auto answer = SnapshotAnswer::decode(frame.body);
  if (!answer) return;
  if (answer->id.origin != id_) {
    const auto path = reverse_paths_.find(answer->id);
    ControlConnection* const to = path == reverse_paths_.end() ? nullptr : connection(path->second);
    if (to != nullptr && to->open())
      sender_.send(*to, make_frame(FrameType::kSnapshotAnswer, frame.body));
    return;
  }
  const auto found = std::ranges::find(collections_, answer->id, &Collection::id);
  if (found == collections_.end() || found->expected.erase(answer->context_id) == 0) return;
  if (!found->client)
    owner_.on_calls(answer->context_id, std::as_bytes(std::span(answer->json)), found->began, now);
  else if (ControlConnection* client = connection(*found->client))
    sender_.send(*client, make_frame(FrameType::kSnapshot, answer->json));
  found->stopped.insert(answer->stopped.begin(), answer->stopped.end());
  if (end_if_complete(*found, /*late=*/false, now)) collections_.erase(found);
}

void SnapshotRelay::end_late(TimePoint now) {
  std::erase_if(collections_, [&](const Collection& one) {
    return end_if_complete(one, now - one.began >= kLimit, now);
  });
}

// Inside a host, the process that has got the search first sends it to all others that it shares a
// group with, because these are connected.
void SnapshotRelay::pass_on(const SnapshotSearch& search, const ControlConnection* from) {
  const std::vector<std::byte> frame = search.frame();
  const bool repeats = from != nullptr && from->kind == LinkKind::kLocal;
  sender_.for_each([&](ControlConnection& one) {
    if (!one.open() || &one == from || !groups_.has(one.peer)) return;
    if (repeats && one.kind == LinkKind::kLocal && share_group(from->peer, one.peer)) return;
    sender_.send(one, frame);
  });
}

bool SnapshotRelay::share_group(uint64_t one, uint64_t other) const {
  return std::ranges::any_of(groups_.all(), [&](const auto& entry) {
    const ControlGroup& group = entry.second;
    return group.formed && group.roster.has(one) && group.roster.has(other);
  });
}

std::vector<uint64_t> SnapshotRelay::stopped_here() const {
  std::vector<uint64_t> out;
  for (const auto& [id, peer] : processes_.all())
    if (peer.pid > 0 && is_stopped(peer.pid)) out.push_back(id);
  return out;
}

bool SnapshotRelay::end_if_complete(const Collection& collection, bool late, TimePoint now) {
  const bool complete = std::ranges::all_of(collection.expected, [&](uint64_t process) {
    return collection.stopped.contains(process) || history_.departed(process);
  });
  ControlConnection* const client = collection.client ? connection(*collection.client) : nullptr;
  if (collection.client && client == nullptr) return true;
  if (!complete && !late) return false;
  if (client == nullptr) {
    owner_.on_calls_complete(now);
    return true;
  }
  sender_.send(*client, make_frame(FrameType::kSnapshotEnd, end_text(collection, now)));
  sender_.close_after_output(*client);
  return true;
}

std::string SnapshotRelay::end_text(const Collection& collection, TimePoint now) const {
  std::vector<std::string> missing;
  for (const uint64_t process : collection.expected)
    missing.push_back(missing_text(collection, process, now));
  return JsonObject()
      .add("version", 1)
      .add("collector", format_id(id_))
      .add("seconds", seconds(now - collection.began))
      .add_json("missing", json_array(missing))
      .text();
}

std::string SnapshotRelay::missing_text(const Collection& collection, uint64_t process,
                                        TimePoint now) const {
  const auto cause = history_.lost(process);
  JsonObject out;
  out.add("context", format_id(process));
  if (const ControlMember* member = groups_.member(process))
    out.add("host", member->host_name).add("pid", member->pid);
  out.add("state", cause                                  ? "lost"
                   : history_.left(process)               ? "left"
                   : collection.stopped.contains(process) ? "stopped"
                                                          : "silent");
  if (cause) out.add("cause", *cause);
  std::optional<TimePoint> heard;
  if (const ControlPeer* peer = processes_.find(process))
    for (const LinkKind kind : kLinkKinds) heard = std::max(heard, peer->link(kind).last_heard());
  std::vector<std::string> groups;
  for (const auto& [nonce, group] : groups_.all()) {
    if (group.left() || !group.roster.has(process)) continue;
    const ControlMember& member = group.roster.member(process);
    groups.push_back(JsonObject().add("id", format_id(nonce)).add("rank", member.rank).text());
    if (const auto host = group.heard.find(member.host); host != group.heard.end())
      heard = std::max(heard, std::optional(host->second));
  }
  if (heard) out.add("silent_for", seconds(now - *heard));
  return out.add_json("groups", json_array(groups)).text();
}

ControlConnection* SnapshotRelay::connection(uint64_t key) {
  ControlConnection* out = nullptr;
  sender_.for_each([&](ControlConnection& one) {
    if (one.key == key) out = &one;
  });
  return out;
}

}  // namespace ringdist
