#include "engine/group/group_slot.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/describe.h"
#include "base/error.h"
#include "base/json.h"
#include "engine/group/op_error.h"

namespace ringdist {
namespace {

constexpr uint64_t kFirstOp = 1;

Awaited members_to_be_found() { return {"the group's members to be found"}; }

// Returns the name of a state in snapshots.
const char* name_of(GroupStatus::Rank rank) {
  switch (rank) {
    case GroupStatus::kIdle:
      return "idle";
    case GroupStatus::kRuns:
      return "runs";
    case GroupStatus::kFailed:
      return "failed";
    case GroupStatus::kIsAwaited:
      return "awaited";
    case GroupStatus::kWaits:
      return "waits";
  }
  return "idle";
}

}  // namespace

GroupSlot::GroupSlot(GroupDelegate& delegate, int rank, int size, GroupConfig config)
    : delegate_(delegate), rank_(rank), size_(size), config_(std::move(config)) {}

void GroupSlot::set_nonce(uint64_t nonce) {
  check(state_ != State::kNamed && state_ != State::kFormed, "a group is named twice");
  nonce_ = nonce;
  if (state_ == State::kBootstrapping) state_ = State::kNamed;
  if (state_ != State::kFailedUnannounced) return;
  failure_notifier_.tell(kFirstOp);
  state_ = State::kFailed;
  end();
}

void GroupSlot::form(const GroupDescriptor& membership) {
  check(is_forming(), "a group is formed twice, or after its end");
  check(membership.rank == rank_ && membership.size() == size_, "other members than were sought");
  group_ = std::make_unique<Group>(delegate_, membership, config_);
  nonce_ = membership.nonce;
  state_ = State::kFormed;
  group_->begin();
  for (; !waiting_.empty(); waiting_.pop_front()) group_->enqueue(waiting_.front());
}

void GroupSlot::enqueue(const std::shared_ptr<Op>& op) {
  if (group_) return group_->enqueue(op);
  last_number_ = std::max(last_number_, op->number);
  try {
    waiting_.push_back(op);
  } catch (...) {  // the op is in no list, so it must be ended here
    fail(current_exception_error(), /*tell_others=*/true);
    return end_op(op);
  }
  if (failed()) end();
}

void GroupSlot::on_notice(const Notice& notice) {
  if (group_) return group_->on_notice(notice);
  if (aborts_formation(notice) && notice.rank != rank_)
    fail(cause_of(notice), /*tell_others=*/false);
}

void GroupSlot::fail(const Error& cause, bool tell_others) noexcept {
  if (group_) return group_->fail(cause, tell_others);
  if (failed()) return;
  failure_ = cause;
  failure_notifier_.begin(tell_others && state_ == State::kNamed ? std::optional(kFirstOp)
                                                                 : std::nullopt);
  state_ =
      tell_others && state_ == State::kBootstrapping ? State::kFailedUnannounced : State::kFailed;
  end();
}

uint64_t GroupSlot::stop_and_report(const Error& cause) noexcept {
  fail(cause, /*tell_others=*/false);
  return group_ ? group_->first_unfinished() : kFirstOp;
}

void GroupSlot::end() noexcept {
  failure_notifier_.notify_pending(delegate_, failure_, [this](uint64_t op) {
    return abort_notice(nonce_, /*generation=*/0, rank_, op, failure_);
  });
  for (; !waiting_.empty(); waiting_.pop_front()) end_op(waiting_.front());
  if (config_.service) config_.service->end(failure_);
}

void GroupSlot::end_op(const std::shared_ptr<Op>& op) noexcept {
  delegate_.finish_op(op, op_error(*op, nullptr, rank_, config_.name, failure_));
}

std::vector<std::string> GroupSlot::abandon(const Error& cause, bool all) {
  std::vector<std::string> out;
  if (group_) out = group_->abort_receives(cause);
  std::erase_if(waiting_, [&](const std::shared_ptr<Op>& op) {
    if (!op->request.envelope || op->request.envelope->sends) return false;
    out.push_back(op->describe());
    delegate_.finish_op(op, op_error(*op, nullptr, rank_, config_.name, cause));
    return true;
  });
  if (!all || failure() || (!out.empty() && idle())) return out;
  out.push_back(status().text);
  fail(cause, /*tell_others=*/true);
  return out;
}

void GroupSlot::tick() {
  if (group_) return group_->tick();
  if (failed()) return end();
  const TimePoint now = delegate_.progress_state().now;
  const auto late =
      std::ranges::find_if(waiting_, [&](const auto& op) { return now > op->deadline; });
  if (late != waiting_.end())
    return fail(Error(ErrorKind::kTimeout, timed_out(**late, rank_, now) +
                                               ": the group's members have not all been found"),
                /*tell_others=*/true);
  if (waiting_.empty()) return;
  SlowOpWarning warning(config_.warn_after, now);
  warning.look_at(*waiting_.front(), nullptr, [this] { return status_of_waiting().text; });
  warning.log_for(rank_, config_.name);
}

void GroupSlot::announce_leave(NoticeKind how) {
  if (group_) return group_->announce_leave(how);
  if (state_ != State::kNamed) return;
  delegate_.flood(make_notice(how, nonce_, /*generation=*/0, rank_, /*op=*/0));
}

GroupStatus GroupSlot::status_of_waiting() const {
  return status_of(*waiting_.front(), nullptr, delegate_.progress_state().now, members_to_be_found);
}

GroupStatus GroupSlot::status() const {
  if (group_) return group_->status();
  if (failed()) return {GroupStatus::kFailed, Duration(0), "failed: " + failure_.message()};
  if (waiting_.empty()) return {GroupStatus::kIdle, Duration(0), "looks for its members"};
  return status_of_waiting();
}

std::string GroupSlot::dump() const {
  if (group_) return group_->dump();
  std::string out = "  group '" + config_.name + "', rank " + std::to_string(rank_) + " of " +
                    std::to_string(size_) +
                    (failed() ? ", never formed" : ", waiting for its members") + ", last op #" +
                    std::to_string(last_number_) + ": " + status().text;
  for (const auto& op : waiting_) out += "\n   " + op->describe() + ": not started";
  return out + "\n";
}

std::string GroupSlot::snapshot() const {
  const GroupStatus now = status();
  JsonObject out;
  out.add("name", config_.name).add("id", format_id(nonce_)).add("rank", rank_).add("size", size_);
  out.add("last", group_ ? group_->last_called() : last_number_);
  out.add("state", name_of(now.rank)).add("text", now.text).add("age", seconds(now.age));
  if (now.number != 0 || !now.call.empty()) out.add("op", now.number).add("call", now.call);
  return out.add_json("ranks", json_array(now.ranks)).text();
}

}  // namespace ringdist
