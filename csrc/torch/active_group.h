// ActiveGroupHolder: gives a ProcessGroupRing the objects that serve its calls. A group that is
// reconfigured replaces them.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "base/thread_annotations.h"
#include "engine/communicator.h"
#include "engine/hooks.h"
#include "engine/reconfiguration.h"
#include "torch/call_submitter.h"
#include "torch/ops/call.h"
#include "torch/ops/call_compressor.h"
#include "torch/sparse_reducer.h"

namespace ringdist {

// A Communicator and the objects that turn calls of PyTorch into its ops. Any thread.
struct ActiveGroup {
  ActiveGroup(std::shared_ptr<Communicator> group, CodecPair codecs)
      : communicator(std::move(group)),
        ranks{communicator->rank(), communicator->size()},
        compressor(communicator->size(), std::move(codecs)),
        submitter(std::make_shared<CallSubmitter>(communicator)),
        sparse(communicator) {}

  const std::shared_ptr<Communicator> communicator;
  const RankAndSize ranks;
  const CallCompressor compressor;
  const std::shared_ptr<CallSubmitter> submitter;
  SparseReducer sparse;
  std::atomic<bool> aborted_here{false};  // abort() was called on this rank
};

// Holds the ActiveGroup of a ProcessGroupRing: for good, or until the group is reconfigured. Any
// thread, but one call of reconfigure() at a time.
class ActiveGroupHolder {
 public:
  // A reference to an ActiveGroup. Keeps it alive if it may be replaced. Otherwise it is valid as
  // long as the ActiveGroupHolder.
  class Ref {
   public:
    Ref(ActiveGroup* serving, std::shared_ptr<ActiveGroup> keep)
        : serving_(serving), keep_(std::move(keep)) {}
    ActiveGroup* operator->() const { return serving_; }
    explicit operator bool() const { return serving_ != nullptr; }

   private:
    ActiveGroup* serving_;
    std::shared_ptr<ActiveGroup> keep_;
  };

  // For a group that is never reconfigured.
  explicit ActiveGroupHolder(std::shared_ptr<ActiveGroup> for_good)
      : serving_(std::move(for_good)) {}
  // For a group that is reconfigured; it has no ActiveGroup at first.
  explicit ActiveGroupHolder(std::shared_ptr<Reconfiguration> reconfiguration)
      : reconfiguration_(std::move(reconfiguration)) {}

  bool is_reconfigured() const { return reconfiguration_ != nullptr; }
  // Returns a null reference if reconfigure() has not been called yet.
  Ref get() const {
    // No lock on the path of each operation.
    if (!reconfiguration_) return {serving_.get(), nullptr};
    std::lock_guard lock(mutex_);
    return {serving_.get(), serving_};
  }
  // Returns the ActiveGroup; raises an error if there is none yet.
  Ref current() const;

  // Fills in the options that PyTorch reads: name, timeout and members. The members are missing
  // until the first reconfigure().
  void describe(c10d::Backend::Options& options) const;
  // Sets the timeout of this group and of later ones.
  void set_timeout(std::chrono::milliseconds timeout);
  uint64_t sequence_number() const;
  // Returns the kind of the group's failure. `rank` is this rank: a failure that another rank
  // caused is a REMOTE_ERROR. A group that can be reconfigured and was aborted here has no failure.
  c10d::ErrorType error(int rank) const;
  // Fails the group on all ranks. `rank` is this rank.
  void abort(int rank);
  // Waits for the ops in flight and leaves the group. After RINGDIST_DESTROY_GRACE, aborts
  // receives. If the thread handles a Python exception, it then also fails a group with other ops
  // in flight. Call it without the GIL. Ctrl-C ends the wait with an exception, and the group stays
  // open.
  void shutdown();

  // Hooks are also attached to later ActiveGroups.
  void add_failure_hook(int64_t id, std::function<void()> hook);
  void remove_failure_hook(int64_t id);
  void add_success_hook(int64_t id, std::function<void(uint64_t, float)> hook);
  void remove_success_hook(int64_t id);

  // Both call Reconfiguration and raise its errors.
  std::string handle() const;
  // Returns the new group, after it has formed. If it does not form, raises an error and changes
  // nothing.
  std::shared_ptr<Communicator> reconfigure(const Reconfiguration::Request& request);
  std::chrono::milliseconds timeout() const;

 private:
  // Returns the Reconfiguration. Raises NotSupportedError with the name of `caller` if there is
  // none.
  Reconfiguration& reconfiguration(const char* caller) const;
  // Makes `group` the active one. Ends the ops of the one before, and closes it on the pool.
  void take_up(const std::shared_ptr<Communicator>& group);

  const std::shared_ptr<Reconfiguration> reconfiguration_;  // null: the members never change
  Hooks hooks_;                                             // for groups that are reconfigured
  mutable std::mutex mutex_;
  std::shared_ptr<ActiveGroup> serving_;  // guarded by mutex_ if the group is reconfigured
};

}  // namespace ringdist
