// What serves the calls of a ProcessGroupRing: a Communicator and what is made for it. A group that
// is reconfigured gets another one.
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

struct ActiveGroup {
  ActiveGroup(std::shared_ptr<Communicator> group, CodecPair codecs)
      : communicator(std::move(group)),
        ranks{communicator->rank(), communicator->size()},
        compressor(communicator->size(), std::move(codecs)),
        runner(std::make_shared<CallSubmitter>(communicator)),
        sparse(communicator) {}

  const std::shared_ptr<Communicator> communicator;
  const RankAndSize ranks;
  const CallCompressor compressor;
  const std::shared_ptr<CallSubmitter> runner;
  SparseReducer sparse;
  std::atomic<bool> aborted_here{false};  // by a call on this rank
};

// What a ProcessGroupRing has behind it: what serves its calls, for good, or until the group is
// reconfigured. Any thread; one call of reconfigure() at a time.
class ActiveGroupHolder {
 public:
  // Keeps what it names, where that may be replaced.
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

  explicit ActiveGroupHolder(std::shared_ptr<ActiveGroup> for_good)
      : serving_(std::move(for_good)) {}
  explicit ActiveGroupHolder(std::shared_ptr<Reconfiguration> reconfiguration)
      : reconfiguration_(std::move(reconfiguration)) {}

  bool is_reconfigured() const { return reconfiguration_ != nullptr; }
  // Null: reconfigure() has not been called yet.
  Ref get() const {
    if (!reconfiguration_) return {serving_.get(), nullptr};  // no lock for each operation
    std::lock_guard lock(mutex_);
    return {serving_.get(), serving_};
  }
  // Raises where there is none yet.
  Ref current() const;

  void describe(c10d::Backend::Options& options) const;
  void set_timeout(std::chrono::milliseconds timeout);
  uint64_t sequence_number() const;
  // `rank`: ours.
  c10d::ErrorType error(int rank) const;
  void abort(int rank);
  // Waits for the ops in flight.
  void shutdown();

  // Those of the next ActiveGroup, too.
  void add_failure_hook(int64_t id, std::function<void()> hook);
  void remove_failure_hook(int64_t id);
  void add_success_hook(int64_t id, std::function<void(uint64_t, float)> hook);
  void remove_success_hook(int64_t id);

  // As of Reconfiguration, whose errors they raise.
  std::string handle() const;
  // The group, which has formed. Raises, and leaves all as it was, where it does not.
  std::shared_ptr<Communicator> reconfigure(const Reconfiguration::Request& request);
  std::chrono::milliseconds timeout() const;

 private:
  Reconfiguration& reconfiguration(const char* caller) const;
  void take_up(const std::shared_ptr<Communicator>& group);

  const std::shared_ptr<Reconfiguration> reconfiguration_;  // null: its members are for good
  Hooks hooks_;                                             // of one that is reconfigured
  mutable std::mutex mutex_;
  std::shared_ptr<ActiveGroup> serving_;  // with the mutex, unless it is for good
};

}  // namespace ringdist
