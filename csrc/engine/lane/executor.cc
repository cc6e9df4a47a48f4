#include "engine/lane/executor.h"

#include <algorithm>

#include "base/log.h"
#include "engine/lane/guarded.h"
#include "engine/op/dispatch.h"

namespace ringdist {
namespace {

constexpr int kWorkBatch = 32;  // segments between two looks at the wire
constexpr auto kTickTime = std::chrono::milliseconds(50);
constexpr auto kStrayTime = std::chrono::seconds(60);
constexpr size_t kMaxStrays = size_t{1} << 17;  // peers send within their early windows only
constexpr size_t kMaxStrayNotices = 4096;
constexpr size_t kMaxClosed = 1024;

}  // namespace

Executor::Executor(Statistics& statistics, int64_t memory_limit, Token& token, LaneHost& host)
    : token_(token), host_(host), state_(statistics, memory_limit) {}

void Executor::add(std::shared_ptr<Seat> seat) {
  check_token();
  seats_.insert(std::move(seat));
}

void Executor::expect(const std::shared_ptr<Seat>& seat, uint64_t nonce) {
  check_token();
  if (!seats_.contains(seat)) return;
  seat->expect(nonce);
  for (const Notice& notice : stray_notices_)
    if (notice.nonce == nonce) seat->on_notice(notice);
}

void Executor::form(const std::shared_ptr<Seat>& seat, const Membership& membership) {
  check_token();
  if (!seats_.contains(seat) || seat->failure()) return;
  seat->form(membership);
  Group& group = *seat->group();
  const GroupKey key{membership.nonce, membership.rank};
  by_key_[key] = &group;
  for (const ParkedMessage& stray : strays_.take(key))
    group.on_message(stray.header, stray.payload.bytes());
  // Then who is gone. Notices first: they say which op was a leaver's last.
  for (const Notice& notice : stray_notices_)
    if (notice.nonce == membership.nonce) group.on_notice(notice);
  for (const GroupMember& member : membership.members)
    if (left_.contains(member.context)) group.process_left(member.context);
  for (const GroupMember& member : membership.members)
    if (auto it = lost_.find(member.context); it != lost_.end())
      group.process_lost(member.context, it->second);
}

void Executor::remove(const std::shared_ptr<Seat>& seat) {
  check_token();
  if (!seats_.contains(seat)) return;
  seat->fail(Error(ErrorKind::kAborted, "the group was destroyed"), /*tell_others=*/false);
  if (Group* group = seat->group()) group->release_ended();
  seats_.erase(seat);
  if (seat->nonce() == 0) return;
  by_key_.erase({seat->nonce(), seat->rank()});
  closed_.push_back(seat->nonce());
  if (closed_.size() > kMaxClosed) closed_.pop_front();
}

// Of those that are formed.
template <typename Each>
void Executor::for_each_group(const Each& each) {
  for (const auto& seat : seats_)
    if (Group* group = seat->group()) each(*group);
}

void Executor::on_message(ConstBytes bytes, ConstBytes payload) {
  check_token();
  MessageHeader header{};
  if (!parse_header(bytes, header)) return;  // not ours: nothing in it can be trusted
  contain([&] {
    auto it = by_key_.find({header.nonce, header.destination});
    if (it == by_key_.end()) return keep_stray(header, payload);
    it->second->on_message(header, payload);
  });
}

void Executor::on_sent(Ticket ticket, const Error& error) {
  check_token();
  contain([&] { bring_home(state_, ticket, error); });
}

// A transport may be called back by a library of C, which no exception may cross.
template <typename Body>
void Executor::contain(const Body& body) {
  (void)guarded(*this, [&] {
    body();
    return true;
  });
}

bool Executor::is_closed(uint64_t nonce) const { return std::ranges::count(closed_, nonce) > 0; }

void Executor::keep_stray(const MessageHeader& header, ConstBytes payload) {
  if (strays_.count() >= kMaxStrays || is_closed(header.nonce)) return;
  const GroupKey key{header.nonce, header.destination};
  if (strays_.park(key, header, payload)) stray_since_.emplace_back(state_.now, key);
}

void Executor::on_peer_lost(std::string_view transport, ContextId peer, const Error& cause) {
  check_token();
  contain([&] {
    log(LogLevel::kDebug,
        "a connection over " + std::string(transport) + " ended: " + cause.message());
    for_each_group([&](Group& group) { group.connection_lost(transport, peer, cause); });
  });
}

void Executor::process_lost(ContextId context, const Error& cause) {
  check_token();
  lost_.emplace(context, cause);
  for_each_group([&](Group& group) { group.process_lost(context, cause); });
}

// True if a group of ours is meant.
bool Executor::give_to_groups(const Notice& notice) {
  bool known = false;
  for (const auto& seat : seats_) {
    if (seat->nonce() != notice.nonce) continue;
    // Until it is formed it hears only why it will not be; the rest is for later.
    if (!seat->group() && !prevents(notice)) continue;
    known = true;
    seat->on_notice(notice);
  }
  return known;
}

void Executor::on_notice(const Notice& notice) {
  check_token();
  if (give_to_groups(notice) || is_closed(notice.nonce)) return;
  stray_notices_.push_back(notice);
  if (stray_notices_.size() > kMaxStrayNotices) stray_notices_.pop_front();
}

void Executor::process_left(ContextId context) {
  check_token();
  left_.insert(context);
  for_each_group([&](Group& group) { group.process_left(context); });
}

void Executor::fail_all(const Error& cause) {
  check_token();
  // At our own end the others hear of it otherwise.
  const bool tell_others = cause.kind() != ErrorKind::kAborted;
  for (const auto& seat : seats_) seat->fail(cause, tell_others);
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
  for (; done < kWorkBatch && !state_.work.empty(); ++done) work_next(state_);
  release_ended();
  return done > 0;
}

void Executor::release_ended() {
  if (!std::exchange(state_.any_ended, false)) return;
  for (const auto& seat : seats_)
    if (Group* group = seat->group()) group->release_ended();
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
  for (const auto& seat : seats_) seat->tick();
  forget_strays();
  release_ended();
}

// They may belong to a group that is still looking for its members: they stay while there is one.
void Executor::forget_strays() {
  const bool any_forms = std::ranges::any_of(
      seats_, [](const auto& seat) { return seat->state() == Seat::State::kForming; });
  for (;
       !any_forms && !stray_since_.empty() && state_.now - stray_since_.front().first > kStrayTime;
       stray_since_.pop_front())
    (void)strays_.take(stray_since_.front().second);
}

bool Executor::idle() const {
  return state_.work.empty() &&
         std::ranges::all_of(seats_, [](const auto& seat) { return seat->idle(); });
}

std::string Executor::verdict() const {
  GroupVerdict worst{GroupVerdict::kIdle, Duration(0), "no operation in flight"};
  for (const auto& seat : seats_) {
    const GroupVerdict one = seat->verdict();
    if (!one.worse_than(worst)) continue;
    worst = one;
    worst.text = "group '" + seat->name() + "': " + one.text;
  }
  return worst.text;
}

std::string Executor::dump() const {
  std::string out = "  transport memory promised: " + std::to_string(state_.promises.promised()) +
                    " of " + std::to_string(state_.promises.limit()) +
                    " bytes; messages of unknown " + "groups: " + std::to_string(strays_.count()) +
                    "\n";
  for (const auto& seat : seats_) out += seat->dump();
  return out;
}

}  // namespace ringdist
