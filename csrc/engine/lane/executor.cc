#include "engine/lane/executor.h"

#include <algorithm>

#include "base/log.h"

namespace ringdist {
namespace {

constexpr int kWorkBatch = 32;  // segments between two looks at the wire
constexpr auto kTickTime = std::chrono::milliseconds(50);
constexpr auto kStrayTime = std::chrono::seconds(60);
constexpr size_t kMaxStrays = size_t{1} << 17;  // peers send within their early windows only
constexpr size_t kMaxStrayNotices = 4096;
constexpr size_t kMaxClosed = 1024;

// No operation of the group will begin.
bool prevents(const Notice& notice) { return notice.kind == NoticeKind::kAbort && notice.op <= 1; }

}  // namespace

Executor::Executor(Statistics& statistics, int64_t memory_limit, Token& token, LaneHost& host)
    : token_(token), host_(host), state_(statistics, memory_limit) {}

void Executor::add_group(std::shared_ptr<Group> group) {
  check_token();
  groups_.insert(std::move(group));
}

void Executor::expect(const std::shared_ptr<Group>& group, uint64_t nonce) {
  check_token();
  if (!groups_.contains(group)) return;
  group->expect(nonce);
  for (const Notice& notice : stray_notices_)
    if (notice.nonce == nonce && prevents(notice)) group->on_notice(notice);
}

void Executor::make_ready(const std::shared_ptr<Group>& group, uint64_t nonce,
                          std::vector<GroupMember> members) {
  check_token();
  if (!groups_.contains(group)) return;
  if (group->failure()) return;
  std::vector<ContextId> contexts;
  for (const auto& member : members) contexts.push_back(member.context);
  by_key_[{nonce, group->rank()}] = group;
  group->make_ready(nonce, std::move(members));
  for (const ParkedMessage& stray : strays_.take({nonce, group->rank()}))
    group->on_message(stray.header, stray.payload.bytes());
  // Then who is gone. Notices first: they say which op was a leaver's last.
  for (const Notice& notice : stray_notices_)
    if (notice.nonce == nonce) group->on_notice(notice);
  for (ContextId context : contexts)
    if (left_.contains(context)) group->process_left(context);
  for (ContextId context : contexts)
    if (auto it = lost_.find(context); it != lost_.end()) group->process_lost(context, it->second);
}

void Executor::remove_group(const std::shared_ptr<Group>& group) {
  check_token();
  if (!groups_.contains(group)) return;
  group->fail(Error(ErrorKind::kAborted, "the group was destroyed"), /*tell_others=*/false);
  group->release_ended();
  groups_.erase(group);
  if (group->nonce() == 0) return;
  by_key_.erase({group->nonce(), group->rank()});
  closed_.push_back(group->nonce());
  if (closed_.size() > kMaxClosed) closed_.pop_front();
}

void Executor::on_message(ConstBytes bytes, ConstBytes payload) {
  check_token();
  MessageHeader header{};
  if (!parse_header(bytes, header)) return;  // not ours: nothing in it can be trusted
  auto it = by_key_.find({header.nonce, header.destination});
  if (it == by_key_.end()) return keep_stray(header, payload);
  const auto group = it->second;
  group->on_message(header, payload);
}

// The memory goes when the Run has heard of it.
void Executor::on_sent(Ticket ticket, const Error& error) {
  check_token();
  const auto home = state_.tickets.redeem(ticket);
  if (!home || home->what.run == nullptr) return;
  home->what.run->on_sent(home->what.step, home->what.target, home->what.segment, error);
}

void Executor::keep_stray(const MessageHeader& header, ConstBytes payload) {
  if (strays_.count() >= kMaxStrays || std::ranges::count(closed_, header.nonce) > 0) return;
  const GroupKey key{header.nonce, header.destination};
  if (strays_.park(key, header, payload)) stray_since_.emplace_back(state_.now, key);
}

void Executor::on_peer_lost(std::string_view transport, ContextId peer, const Error& cause) {
  check_token();
  log(LogLevel::kDebug,
      "a connection over " + std::string(transport) + " ended: " + cause.message());
  for (const auto& group : std::set(groups_)) group->connection_lost(transport, peer, cause);
}

void Executor::process_lost(ContextId context, const Error& cause) {
  check_token();
  lost_.emplace(context, cause);
  for (const auto& group : std::set(groups_)) group->process_lost(context, cause);
}

// True if a group of ours is meant.
bool Executor::give_to_groups(const Notice& notice) {
  bool known = false;
  for (const auto& group : std::set(groups_)) {
    if (group->nonce() != notice.nonce) continue;
    // Until it is ready it hears only why it will not be; the rest is for later.
    if (!group->ready() && !prevents(notice)) continue;
    known = true;
    group->on_notice(notice);
  }
  return known;
}

void Executor::on_notice(const Notice& notice) {
  check_token();
  if (give_to_groups(notice) ||
      std::find(closed_.begin(), closed_.end(), notice.nonce) != closed_.end())
    return;
  stray_notices_.push_back(notice);
  if (stray_notices_.size() > kMaxStrayNotices) stray_notices_.pop_front();
}

void Executor::process_left(ContextId context) {
  check_token();
  left_.insert(context);
  for (const auto& group : std::set(groups_)) group->process_left(context);
}

void Executor::fail_all(const Error& cause) {
  check_token();
  // At our own end the others hear of it otherwise.
  const bool tell_others = cause.kind() != ErrorKind::kAborted;
  for (const auto& group : std::set(groups_)) group->fail(cause, tell_others);
}

// The control plane serves other processes; other ranks of this Context hear it from the same
// handler.
void Executor::flood(const Notice& notice) {
  host_.flood(notice);
  own_notices_.push_back(notice);
}

bool Executor::run_work() {
  check_token();
  int done = 0;
  for (const Notice& notice : std::exchange(own_notices_, {})) (void)give_to_groups(notice);
  for (; done < kWorkBatch && !state_.work.empty(); ++done) {
    const WorkItem item = state_.work.pop();
    item.run->work(item.step);
  }
  release_ended();
  return done > 0;
}

void Executor::release_ended() {
  if (!std::exchange(state_.any_ended, false)) return;
  for (const auto& group : groups_) group->release_ended();
}

void Executor::finish_op(const std::shared_ptr<Op>& op, Error error) {
  Statistics::add(error ? state_.statistics.ops_failed : state_.statistics.ops_completed, 1);
  auto callbacks = op->finish(std::move(error));
  token_.wake(*op);
  if (!callbacks.empty())
    host_.run_elsewhere([callbacks = std::move(callbacks)] {
      for (const auto& callback : callbacks) callback();
    });
}

void Executor::tick() {
  check_token();
  if (state_.now < next_tick_) return;
  next_tick_ = state_.now + kTickTime;
  for (const auto& group : std::set(groups_)) group->tick();
  forget_strays();
  release_ended();
}

// They may belong to a group that is still looking for its members: until all are ready, they stay.
void Executor::forget_strays() {
  const bool all_ready =
      std::ranges::all_of(groups_, [](const auto& group) { return group->settled(); });
  for (; all_ready && !stray_since_.empty() && state_.now - stray_since_.front().first > kStrayTime;
       stray_since_.pop_front())
    (void)strays_.take(stray_since_.front().second);
}

bool Executor::idle() const {
  return state_.work.empty() && std::all_of(groups_.begin(), groups_.end(),
                                            [](const auto& group) { return group->idle(); });
}

std::string Executor::verdict() const {
  GroupVerdict worst{GroupVerdict::kIdle, Duration(0), "no operation in flight"};
  for (const auto& group : groups_) {
    const GroupVerdict one = group->verdict();
    if (std::pair(one.rank, one.age) <= std::pair(worst.rank, worst.age)) continue;
    worst = one;
    worst.text = "group '" + group->name() + "': " + one.text;
  }
  return worst.text;
}

std::string Executor::dump() const {
  std::string out = "  transport memory promised: " + std::to_string(state_.promises.promised()) +
                    " of " + std::to_string(state_.promises.limit()) +
                    " bytes; messages of unknown " + "groups: " + std::to_string(strays_.count()) +
                    "\n";
  for (const auto& group : groups_) out += group->dump();
  return out;
}

}  // namespace ringdist
