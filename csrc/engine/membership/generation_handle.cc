#include "engine/membership/generation_handle.h"

namespace ringdist {
namespace {

constexpr auto kNotFound =
    "it has not found its members, so nobody can agree on who goes on: wait for its first "
    "operation. If that has failed, call torch.distributed.destroy_process_group(), and "
    "init_process_group() on those that live, under another prefix of the store or in another one";

}  // namespace

void GenerationHandle::begin(Context& context, const CommunicatorOptions& options,
                             const ResolvedGroup& found, std::weak_ptr<GenerationDelegate> group) {
  std::lock_guard lock(mutex_);
  has_none_ = !GroupMembership::can_have(found);
  if (left_ || has_none_ || membership_) return;
  membership_ = std::make_shared<GroupMembership>(context, options, found, std::move(group));
  membership_->register_group();  // with the lock: leave() comes after it
}

void GenerationHandle::formed(const ResolvedGroup& found) {
  std::lock_guard lock(mutex_);
  if (!left_ && membership_) membership_->formed(number_, found);
}

void GenerationHandle::leave() {
  std::shared_ptr<GroupMembership> own;
  {
    std::lock_guard lock(mutex_);
    left_ = true;
    own = membership_;
  }
  if (own) own->leave(number_);
}

bool GenerationHandle::was_replaced() const {
  std::lock_guard lock(mutex_);
  return membership_ && membership_->last_made() > number_;
}

void GenerationHandle::disconnect(const std::shared_ptr<Context>& context, uint64_t nonce,
                                  int rank) const {
  if (nonce == 0) return;
  const auto leave = [weak = std::weak_ptr(context), nonce, rank] {
    if (const auto held = weak.lock()) held->control().disconnect_group(nonce, rank);
  };
  {
    std::lock_guard lock(mutex_);
    if (membership_ && membership_->defer(leave)) return;
  }
  leave();
}

bool GenerationHandle::admits() const {
  std::lock_guard lock(mutex_);
  return membership_ && membership_->join_acceptor()->admits();
}

// The control plane reports the loss to this process, too, which then fails the group.
Error GenerationHandle::give_up(Context& context, int rank, const std::string& why) const {
  std::unique_lock lock(mutex_);
  const auto own = get();
  lock.unlock();
  if (!own.ok()) return own.error();
  const ContextId process = own.value()->member(number_, rank);
  if (process != 0) context.control().give_up(process, why);
  return {};
}

Result<std::shared_ptr<GroupMembership>> GenerationHandle::get() const {
  if (left_) return Error(ErrorKind::kAborted, "it has been destroyed");
  if (has_none_) return Error(ErrorKind::kNotSupported, "several of its ranks are in one process");
  if (!membership_) return Error(ErrorKind::kInvalidArgument, kNotFound);
  return membership_;
}

Error GenerationHandle::admit(std::string job, std::string note, uint32_t most,
                              Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto own = get();
  lock.unlock();
  if (!own.ok()) return own.error();
  return own.value()->join_acceptor()->admit(std::move(job), std::move(note), most, timeout);
}

Result<ShrinkResult> GenerationHandle::next(TimePoint deadline, TimePoint limit,
                                            const GroupMembership::MakeGroup& make) {
  std::unique_lock lock(mutex_);
  const auto own = get();
  if (!own.ok()) return own.error();
  if (in_next_) return Error(ErrorKind::kInvalidArgument, "another thread shrinks it");
  in_next_ = true;
  lock.unlock();
  struct End {
    ~End() {
      std::lock_guard lock(it.mutex_);
      it.in_next_ = false;
    }
    GenerationHandle& it;
  } const end{*this};
  return own.value()->next(number_, deadline, limit, make);
}

}  // namespace ringdist
