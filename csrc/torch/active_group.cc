#include "torch/active_group.h"

#include <cmath>
#include <optional>
#include <string>

#include "base/log.h"
#include "torch/base/errors.h"
#include "torch/base/features.h"
#include "torch/work/interrupts.h"

namespace ringdist {
namespace {

constexpr Milliseconds kSlice{1000};  // pause between checks while shutdown() waits
constexpr size_t kNamed = 8;          // ops that a warning lists

// Aborts ops of a group that is being destroyed, and logs them.
void abandon(Communicator& group, const std::string& why, bool all) {
  const auto aborted = group.abandon(Error(ErrorKind::kAborted, why), all);
  if (aborted.empty()) return;
  std::string text = "rank " + std::to_string(group.rank()) + " of group '" + group.name() +
                     "': " + why + "; after RINGDIST_DESTROY_GRACE it aborts " +
                     std::to_string(aborted.size()) + " of its operations";
  for (size_t i = 0; i < aborted.size() && i < kNamed; ++i) text += "; " + aborted[i];
  log(LogLevel::kWarn, text);
}

}  // namespace

ActiveGroupHolder::Ref ActiveGroupHolder::current() const {
  auto out = get();
  if (!out)
    throw_error(
        Error(ErrorKind::kInvalidArgument, "ringdist: group '" + reconfiguration_->options().name +
                                               "' has no members yet: call reconfigure() first"));
  return out;
}

std::chrono::milliseconds ActiveGroupHolder::timeout() const {
  const auto group = get();
  return group ? group->communicator->timeout() : reconfiguration_->options().timeout;
}

void ActiveGroupHolder::describe(c10d::Backend::Options& options) const {
  const auto group = get();
  options.group_name = group ? group->communicator->name() : reconfiguration_->options().name;
  options.timeout = timeout();
  if (group)
    for (const int rank : group->communicator->members())
      options.global_ranks_in_group.push_back(static_cast<uint64_t>(rank));
#if RINGDIST_TORCH_HAS_RECONFIGURE
  options.enable_reconfigure = is_reconfigured();
#endif
}

void ActiveGroupHolder::set_timeout(std::chrono::milliseconds timeout) {
  if (reconfiguration_) reconfiguration_->set_timeout(timeout);
  if (const auto group = get()) group->communicator->set_timeout(timeout);
}

uint64_t ActiveGroupHolder::sequence_number() const {
  const auto group = get();
  return group ? group->communicator->sequence_number() : 0;
}

c10d::ErrorType ActiveGroupHolder::error(int rank) const {
  const auto group = get();
  const Error error = group ? group->communicator->failure() : Error();
  // Callers abort a group before they reconfigure it. This is no error of the group.
  if (!error || (reconfiguration_ && group->aborted_here)) return c10d::ErrorType::SUCCESS;
  if (error.kind() == ErrorKind::kTimeout) return c10d::ErrorType::TIMEOUT;
  const bool remote = !error.ranks().empty() && error.ranks()[0] != rank;
  return remote ? c10d::ErrorType::REMOTE_ERROR : c10d::ErrorType::COMM_ERROR;
}

void ActiveGroupHolder::abort(int rank) {
  const auto group = get();
  if (!group) return;
  group->aborted_here = true;
  group->communicator->abort("rank " + std::to_string(rank) + " aborted the group");
}

// Waits in slices for Ctrl-C. After the grace time, aborts receives; during an exception it also
// fails the group.
void ActiveGroupHolder::shutdown() {
  const auto group = get();
  if (!group) return;
  // close() would wait, too, but Ctrl-C could not interrupt it. An interrupt leaves the group as it
  // was.
  const auto idle = [&](std::optional<Milliseconds> slice) {
    const TimePoint until = deadline_after(slice);
    return group->sparse.wait_until_idle(until) && group->communicator->wait_until_idle(until);
  };
  const std::string exception = handled_exception();
  const std::string why =
      "the group was destroyed" + (exception.empty() ? "" : " while " + exception + " was handled");
  Milliseconds limit(std::llround(group->communicator->config().destroy_grace * 1000));
  for (; !wait_in_slices(limit, idle); limit = kSlice)
    abandon(*group->communicator, why, /*all=*/!exception.empty());
  group->communicator->close();
}

void ActiveGroupHolder::add_failure_hook(int64_t id, std::function<void()> hook) {
  if (reconfiguration_) hooks_.failed.add(id, hook);
  if (const auto group = get()) group->communicator->hooks()->failed.add(id, std::move(hook));
}

void ActiveGroupHolder::remove_failure_hook(int64_t id) {
  hooks_.failed.remove(id);
  if (const auto group = get()) group->communicator->hooks()->failed.remove(id);
}

void ActiveGroupHolder::add_success_hook(int64_t id, std::function<void(uint64_t, float)> hook) {
  if (reconfiguration_) hooks_.succeeded.add(id, hook);
  if (const auto group = get()) group->communicator->hooks()->succeeded.add(id, std::move(hook));
}

void ActiveGroupHolder::remove_success_hook(int64_t id) {
  hooks_.succeeded.remove(id);
  if (const auto group = get()) group->communicator->hooks()->succeeded.remove(id);
}

// ---- reconfiguration

Reconfiguration& ActiveGroupHolder::reconfiguration(const char* caller) const {
  if (!reconfiguration_)
    throw_error(Error(ErrorKind::kNotSupported, "ringdist: " + std::string(caller) +
                                                    ": this group was made without "
                                                    "init_process_group(enable_reconfigure=True)"));
  return *reconfiguration_;
}

std::string ActiveGroupHolder::handle() const {
  auto out = reconfiguration("get_reconfigure_handle").handle();
  throw_if(out.error());
  return out.value();
}

// An interrupt cancels the attempt and keeps the group before.
std::shared_ptr<Communicator> ActiveGroupHolder::reconfigure(
    const Reconfiguration::Request& request) {
  const std::string about = "ringdist: reconfigure: ";
  const auto attempt = reconfiguration("reconfigure").begin(request);
  if (!attempt.ok()) throw_error(attempt.error().prefixed(about));
  const auto& group = attempt.value().group;
  std::optional<Error> error;
  try {
    (void)wait_in_slices(std::nullopt, [&](std::optional<Milliseconds> slice) {
      error = attempt.value().wait_for(slice.value_or(kSlice));
      return error.has_value();
    });
    while (!error) error = attempt.value().wait_for(kSlice);  // it ends by its timeout
  } catch (...) {
    attempt.value().formation->cancel();
    throw;
  }
  if (*error) throw_error(error->prefixed(about));
  take_up(group);
  return group;
}

// Ops of the group before are ended, because its members have changed.
void ActiveGroupHolder::take_up(const std::shared_ptr<Communicator>& group) {
  auto codecs = parse_compression("option codec", group->config().codec, group->size());
  throw_if(codecs.error());
  auto next = std::make_shared<ActiveGroup>(group, codecs.value());
  std::shared_ptr<ActiveGroup> before;
  {
    std::lock_guard lock(mutex_);
    before = std::exchange(serving_, std::move(next));
  }
  // From here on, callers that add hooks or set the timeout reach the new group. The earlier
  // settings follow.
  hooks_.failed.copy_to(group->hooks()->failed);
  hooks_.succeeded.copy_to(group->hooks()->succeeded);
  group->set_timeout(reconfiguration_->options().timeout);
  if (!before) return;
  // Before its ops are ended, because that is no failure that hooks should see.
  before->communicator->hooks()->failed.clear();
  before->communicator->hooks()->succeeded.clear();
  (void)before->communicator->stop_and_report({ErrorKind::kAborted, "the group was reconfigured"});
  group->context().pool().run([before] { before->communicator->close(); });
}

}  // namespace ringdist
