// GenerationHandle: the generation that a Communicator is, within its GroupMembership. A first
// generation has no membership until its members have been found, and never one if it can have no
// later generation. A later generation has its membership from construction. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/thread_annotations.h"
#include "engine/membership/group_membership.h"

namespace ringdist {

// Connects a Communicator with the GroupMembership, which all generations of a group share.
class GenerationHandle {
 public:
  // `place` is empty for a first generation.
  explicit GenerationHandle(GroupMembership::GenerationRef place)
      : membership_(std::move(place.membership)), number_(place.number) {}

  // Creates and registers the GroupMembership of a first generation, after its members have been
  // found. From then on this process takes part in the group's consensus. Does nothing if there is
  // a membership, if the group can have no later generation, or after leave().
  void begin(Context& context, const CommunicatorOptions& options, const ResolvedGroup& found,
             std::weak_ptr<GenerationDelegate> group);
  // Reports that this rank has found all members. Does nothing without a membership, or after
  // leave().
  void formed(const ResolvedGroup& found);
  // Reports that the group is destroyed here.
  void leave();

  // Returns true if the group of a later generation has been created.
  bool was_replaced() const;
  // Removes this rank of the group `nonce` from the control plane. If a later generation has been
  // created, waits with that until it has formed: until then no other group monitors its members.
  void disconnect(const std::shared_ptr<Context>& context, uint64_t nonce, int rank) const;
  // See Communicator::admit().
  Error admit(std::string job, std::string note, uint32_t most, Milliseconds timeout);
  // Returns true if newcomers may join.
  bool admits() const;
  // See Communicator::give_up().
  Error give_up(Context& context, int rank, const std::string& why) const;
  // Creates the group of the next generation, see GroupMembership::next(). Also fails with
  // kNotSupported and kInvalidArgument, as Communicator::shrink().
  Result<ShrinkResult> next(TimePoint deadline, TimePoint limit,
                            const GroupMembership::MakeGroup& make);

 private:
  // Returns the membership. Errors: kAborted after leave(), and kNotSupported if several ranks are
  // in one process. Until the members have been found, and always for a duplicate,
  // kInvalidArgument.
  Result<std::shared_ptr<GroupMembership>> get() const RINGDIST_REQUIRES(mutex_);

  mutable std::mutex mutex_;
  std::shared_ptr<GroupMembership> membership_ RINGDIST_GUARDED_BY(mutex_);
  bool left_ RINGDIST_GUARDED_BY(mutex_) = false;
  bool in_next_ RINGDIST_GUARDED_BY(mutex_) = false;  // a thread is in next()
  // The members are set, and no later generation is possible.
  bool has_none_ RINGDIST_GUARDED_BY(mutex_) = false;
  const uint32_t number_;
};

}  // namespace ringdist
