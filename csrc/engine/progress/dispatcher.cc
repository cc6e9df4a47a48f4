#include "engine/progress/dispatcher.h"

#include <algorithm>
#include <chrono>

#include "base/describe.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/op/op_execution.h"

namespace ringdist {
namespace {

constexpr Duration kUnknownTime = std::chrono::seconds(60);
// Enough, as peers send within their eager windows only.
constexpr size_t kMaxMessages = size_t{1} << 17;
constexpr size_t kMaxNotices = 4096;
constexpr size_t kMaxClosed = 1024;
constexpr size_t kMostIdleInSnapshot = 16;           // groups
constexpr size_t kMostStatistics = size_t{1} << 18;  // bytes of text, without the groups after it

constexpr int kWorkBatch = 32;  // segments between two polls of the transports
constexpr auto kTickTime = std::chrono::milliseconds(50);

}  // namespace

void UnknownGroupMessages::keep(ContextId from, const MessageHeader& header, const Payload& payload,
                                TimePoint now) {
  const GroupKey key{header.nonce, header.destination};
  if (messages_.count() >= kMaxMessages || messages_.bytes() + payload.size() > most_bytes_ ||
      std::ranges::count(closed_, key) > 0)
    return;
  if (messages_.push(key, header, payload, from)) since_.emplace_back(now, key);
}

void UnknownGroupMessages::keep(const Notice& notice, bool any_forming) {
  const auto of_it = [&](const GroupKey& key) { return key.first == notice.nonce; };
  if (!any_forming && std::ranges::any_of(closed_, of_it)) return;
  notices_.push_back(notice);
  if (notices_.size() > kMaxNotices) notices_.pop_front();
}

void UnknownGroupMessages::close(const GroupKey& key) {
  closed_.push_back(key);
  if (closed_.size() > kMaxClosed) closed_.pop_front();
}

void UnknownGroupMessages::forget_old(bool any_forming, TimePoint now) {
  for (; !any_forming && !since_.empty() && now - since_.front().first > kUnknownTime;
       since_.pop_front())
    (void)messages_.take(since_.front().second);
}

Dispatcher::Dispatcher(Statistics& statistics, int64_t memory_limit, ProgressLock& lock,
                       DispatcherDelegate& delegate)
    : lock_(lock), delegate_(delegate), state_(statistics, memory_limit) {}

// A transport may be called back by a C library, which no exception may cross.
template <typename Body>
void Dispatcher::fail_if_thrown(const Body& body) {
  (void)fail_all_if_thrown(*this, [&] {
    body();
    return true;
  });
}

void Dispatcher::add(std::shared_ptr<GroupSlot> slot) {
  check_locked();
  watched_.reserve(slots_.size() + 1);
  slots_.insert(std::move(slot));
}

void Dispatcher::watch(GroupSlot& slot) const noexcept {
  if (!std::exchange(slot.listed, true)) watched_.push_back(&slot);
}

void Dispatcher::watch_all() const noexcept {
  for (const auto& slot : slots_) watch(*slot);
}

// Returns the groups that are not idle. A process may have many groups, of which few are in use.
// While executions wait to be freed, no group is dropped: release_ended() looks only at listed
// ones.
const std::vector<GroupSlot*>& Dispatcher::busy() const {
  if (!state_.any_ended)
    std::erase_if(watched_, [](GroupSlot* slot) { return !(slot->listed = !slot->idle()); });
  return watched_;
}

void Dispatcher::set_nonce(const std::shared_ptr<GroupSlot>& slot, uint64_t nonce) {
  check_locked();
  if (!slots_.contains(slot)) return;
  with(slot, [&] {
    slot->set_nonce(nonce);
    unknown_groups_.for_each_notice(nonce, [&](const Notice& notice) { slot->on_notice(notice); });
  });
}

void Dispatcher::form(const std::shared_ptr<GroupSlot>& slot, const GroupDescriptor& membership,
                      const std::function<void()>& first) {
  check_locked();
  if (!slots_.contains(slot) || !slot->is_forming()) return;
  with(slot, [&] {
    const UnknownGroupMessages::GroupKey key{membership.nonce, membership.rank};
    if (first) first();
    slot->form(membership);
    Group& group = *slot->group();
    by_key_[key] = &group;
    for (const UnexpectedMessage& message : unknown_groups_.take(key))
      group.on_message(message.from, message.header, message.payload());
    // Departures follow. Notices come first, because they contain the last op of a rank that left.
    unknown_groups_.for_each_notice(membership.nonce,
                                    [&](const Notice& notice) { group.on_notice(notice); });
    for (const GroupMember& member : membership.members)
      if (left_.contains(member.context)) group.process_left(member.context);
    for (const GroupMember& member : membership.members)
      if (auto it = lost_.find(member.context); it != lost_.end())
        group.process_lost(member.context, it->second);
  });
}

void Dispatcher::enqueue(const std::shared_ptr<GroupSlot>& slot, const std::shared_ptr<Op>& op) {
  check_locked();
  watch(*slot);
  slot->enqueue(op);
}

void Dispatcher::remove(const std::shared_ptr<GroupSlot>& slot) {
  check_locked();
  if (!slots_.contains(slot)) return;
  fail_if_thrown(slot, [&] {  // making the Error needs memory
    slot->fail(Error(ErrorKind::kAborted, "the group was destroyed"), /*tell_others=*/false);
  });
  if (Group* group = slot->group()) {
    group->release_ended();
    state_.destroyed.merge(group->statistics());
  }
  const UnknownGroupMessages::GroupKey key{slot->nonce(), slot->rank()};
  std::erase(watched_, slot.get());
  slot->listed = true;  // keeps watch() from listing it again
  slots_.erase(slot);
  if (key.first == 0) return;
  by_key_.erase(key);
  unknown_groups_.close(key);
}

// Groups may become busy by what `each` does, so all slots are watched.
template <typename Each>
void Dispatcher::for_each_group(const Each& each) {
  watch_all();
  for (const auto& slot : slots_)
    if (Group* group = slot->group()) each(*group);
}

void Dispatcher::on_message(ContextId from, ConstBytes bytes, const Payload& payload) {
  check_locked();
  MessageHeader header{};
  // Not a message of ours, so its content cannot be trusted.
  if (!parse_header(bytes, header)) return;
  fail_if_thrown([&] {
    auto it = by_key_.find({header.nonce, header.destination});
    if (it != by_key_.end()) return it->second->on_message(from, header, payload);
    unknown_groups_.keep(from, header, payload, state_.now);
  });
}

void Dispatcher::on_sent(SendId send_id, const Error& error) {
  check_locked();
  fail_if_thrown([&] { complete_send(state_, send_id, error); });
}

void Dispatcher::on_connection_lost(std::string_view transport, ContextId peer,
                                    const Error& cause) {
  check_locked();
  fail_if_thrown([&] {
    log(LogLevel::kDebug,
        "a connection over " + std::string(transport) + " ended: " + cause.message());
    for_each_group([&](Group& group) { group.connection_lost(transport, peer, cause); });
  });
}

void Dispatcher::process_lost(ContextId context, const Error& cause) {
  check_locked();
  lost_.emplace(context, cause);
  for_each_group([&](Group& group) { group.process_lost(context, cause); });
}

void Dispatcher::on_notice(const Notice& notice) {
  check_locked();
  const bool is_forming = any_forming();  // perhaps another rank of the same group
  bool known = false;
  for (const auto& slot : slots_) {
    // A forming group only receives notices that abort it; others are kept for later.
    if (slot->nonce() != notice.nonce || (slot->is_forming() && !aborts_formation(notice)))
      continue;
    known = true;
    watch(*slot);
    slot->on_notice(notice);
  }
  if (!known || is_forming) unknown_groups_.keep(notice, is_forming);
}

void Dispatcher::process_left(ContextId context) {
  check_locked();
  left_.insert(context);
  for_each_group([&](Group& group) { group.process_left(context); });
}

void Dispatcher::fail_all(const Error& cause) noexcept {
  check_locked();
  // When this process shuts down, the other ranks are notified by leave notices and the control
  // plane.
  const bool tell_others = cause.kind() != ErrorKind::kAborted;
  watch_all();
  for (const auto& slot : slots_) slot->fail(cause, tell_others);
}

// The control plane delivers to other processes. Other ranks of this Context get the notice from
// run_work().
void Dispatcher::flood(const Notice& notice) {
  check_locked();
  own_notices_.push_back(notice);
  delegate_.flood(notice);
}

bool Dispatcher::run_work() {
  check_locked();
  int done = 0;
  for (const Notice& notice : std::exchange(own_notices_, {})) on_notice(notice);
  for (; done < kWorkBatch && !state_.work.empty(); ++done) run_next_step(state_);
  release_ended();
  return done > 0;
}

void Dispatcher::release_ended() {
  if (!std::exchange(state_.any_ended, false)) return;
  for (GroupSlot* slot : watched_)
    if (Group* group = slot->group()) group->release_ended();
}

void Dispatcher::finish_op(const std::shared_ptr<Op>& op, Error error) noexcept {
  check_locked();
  Statistics::add(error ? state_.statistics.ops_failed : state_.statistics.ops_completed, 1);
  const bool calls_back = op->finish(std::move(error));
  lock_.wake(*op);
  if (!calls_back) return;
  op->next = std::exchange(to_call_back_, op);
  call_back();
}

void Dispatcher::call_back() noexcept {
  try {
    while (const auto op = to_call_back_) {
      const bool runs = delegate_.run_on_pool([op] {
        for (const auto& callback : op->take_callbacks()) callback();
      });
      if (!runs) (void)op->take_callbacks();
      to_call_back_ = std::exchange(op->next, nullptr);
    }
  } catch (...) {  // no thread is available: tick() retries
  }
}

void Dispatcher::tick() {
  check_locked();
  if (state_.now < next_tick_) return;
  next_tick_ = state_.now + kTickTime;
  for (const auto& slot : slots_) slot->tick();
  call_back();
  unknown_groups_.forget_old(any_forming(), state_.now);
  release_ended();
}

bool Dispatcher::any_forming() const {
  return std::ranges::any_of(slots_, [](const auto& slot) { return slot->is_forming(); });
}

void Dispatcher::set_now(TimePoint now) {
  check_locked();
  state_.now = now;
}

bool Dispatcher::has_work() const {
  check_locked();
  return !state_.work.empty();
}

bool Dispatcher::idle() const {
  check_locked();
  return state_.work.empty() && !to_call_back_ && busy().empty();
}

Backoff::Wait Dispatcher::wait() const {
  if (!state_.work.empty()) return Backoff::Wait::kNear;
  auto out = Backoff::Wait::kNothing;
  for (const GroupSlot* slot : busy()) {
    // A group forms on other threads of this process, which need a core.
    if (slot->is_forming()) continue;
    if (!slot->spans_hosts()) return Backoff::Wait::kNear;
    out = Backoff::Wait::kFar;
  }
  return out;
}

void Dispatcher::set_recorder(std::shared_ptr<TraceRecorder> recorder) {
  check_locked();
  state_.recorder = std::move(recorder);
}

std::string Dispatcher::status() const {
  check_locked();
  GroupStatus worst{GroupStatus::kIdle, Duration(0), std::string(kIdle)};
  for (const auto& slot : slots_) {
    const GroupStatus one = slot->status();
    if (!one.more_severe_than(worst)) continue;
    worst = one;
    worst.text = "group '" + slot->name() + "': " + one.text;
  }
  return worst.text;
}

std::string Dispatcher::dump() const {
  check_locked();
  std::string out = "  transport memory promised: " + std::to_string(state_.grants.granted()) +
                    " of " + std::to_string(state_.grants.limit()) +
                    " bytes; messages of unknown " +
                    "groups: " + std::to_string(unknown_groups_.count()) + "\n";
  for (const auto& slot : slots_) out += slot->dump();
  return out;
}

std::vector<GroupCalls> Dispatcher::calls_since(TimePoint since) const {
  check_locked();
  auto calls = state_.log.calls(since);
  std::vector<GroupCalls> out;
  for (const auto& slot : slots_)
    if (const auto found = calls.find({slot->nonce(), slot->rank()});
        found != calls.end() && !found->second.empty() && slot->size() > 1 &&
        slot->state() == GroupSlot::State::kFormed)
      out.push_back(
          {slot->nonce(), slot->name(), slot->size(), slot->rank(), std::move(found->second)});
  const auto last = [](const GroupCalls& group) { return group.calls.back().began; };
  std::ranges::sort(out, std::greater(), last);
  if (out.size() > CallSample::kMostGroups) out.resize(CallSample::kMostGroups);
  return out;
}

std::string Dispatcher::statistics() const {
  check_locked();
  std::vector<std::pair<uint64_t, GroupSlot*>> used;  // number of ops and group
  for (const auto& slot : slots_)
    if (Group* group = slot->group(); group != nullptr && group->statistics().count() > 0)
      used.emplace_back(group->statistics().count(), slot.get());
  std::ranges::sort(used, std::greater());
  OpStatistics rest = state_.destroyed;
  std::vector<std::string> groups;
  size_t bytes = 0;
  for (const auto& [count, slot] : used) {
    const OpStatistics& ops = slot->group()->statistics();
    if (bytes > kMostStatistics) {
      rest.merge(ops);
      continue;
    }
    JsonObject group;
    group.add("name", slot->name()).add("id", format_id(slot->nonce())).add("rank", slot->rank());
    groups.push_back(group.add_json("ops", ops.json()).text());
    bytes += groups.back().size();
  }
  JsonObject others;
  others.add("name", "others").add("id", "").add("rank", -1).add_json("ops", rest.json());
  if (rest.count() > 0) groups.push_back(others.text());
  return JsonObject()
      .add_json("groups", json_array(groups))
      .add_json("peers", state_.traffic.json(state_.now))
      .text();
}

std::string Dispatcher::snapshot() const {
  check_locked();
  std::vector<std::string> out;
  std::vector<std::pair<int, GroupSlot*>> idle;  // with their sizes
  for (const auto& slot : slots_)
    if (slot->status().rank == GroupStatus::kIdle)
      idle.emplace_back(slot->size(), slot.get());
    else
      out.push_back(slot->snapshot());
  std::ranges::sort(idle, std::greater());
  if (idle.size() > kMostIdleInSnapshot) idle.resize(kMostIdleInSnapshot);
  for (const auto& [size, slot] : idle) out.push_back(slot->snapshot());
  return json_array(out);
}

}  // namespace ringdist
