// The generation of its group that a Communicator is. There is none until the members are known, or
// if the group can have no later one. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/thread_annotations.h"
#include "engine/membership/group_membership.h"

namespace ringdist {

class GenerationHandle {
 public:
  explicit GenerationHandle(GroupMembership::GenerationRef place)
      : membership_(std::move(place.membership)), number_(place.number) {}

  // Its members are known: this process answers for it from now on, if it does not do so already.
  void begin(Context& context, const CommunicatorOptions& options, const ResolvedGroup& found,
             std::weak_ptr<GenerationDelegate> group);
  // This rank has found all of them. Does nothing without begin().
  void formed(const ResolvedGroup& found);
  // It is destroyed.
  void leave();

  // A group was made of a later one.
  bool was_replaced() const;
  // The group of that name, and this rank of it, leaves the control plane: not before a later
  // generation has formed, while whose members look for each other nobody else would watch them.
  void disconnect(const std::shared_ptr<Context>& context, uint64_t nonce, int rank) const;
  // See Communicator::admit().
  Error admit(std::string job, std::string note, uint32_t most, Milliseconds timeout);
  bool admits() const;
  // See Communicator::give_up().
  Error give_up(Context& context, int rank, const std::string& why) const;
  // As of GroupMembership. Errors besides: kNotSupported, kInvalidArgument, as of
  // Communicator::shrink().
  Result<ShrinkResult> next(TimePoint deadline, const GroupMembership::MakeGroup& make);

 private:
  Result<std::shared_ptr<GroupMembership>> get() const RINGDIST_REQUIRES(mutex_);

  mutable std::mutex mutex_;
  std::shared_ptr<GroupMembership> membership_ RINGDIST_GUARDED_BY(mutex_);
  bool left_ RINGDIST_GUARDED_BY(mutex_) = false;
  bool in_next_ RINGDIST_GUARDED_BY(mutex_) = false;
  bool has_none_ RINGDIST_GUARDED_BY(mutex_) = false;  // its members are known: no later one can be
  const uint32_t number_;
};

}  // namespace ringdist
