// Reconfiguration: creates groups of members that the callers choose. Each process has a handle;
// the callers exchange the handles by their own means and give all members the same list. Any
// thread; one attempt at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/thread_annotations.h"
#include "engine/bootstrap/handle_bootstrap.h"
#include "engine/communicator.h"

namespace ringdist {

// Creates such groups in this process, one after the other.
class Reconfiguration {
 public:
  // `options` apply to all groups, except for rank, size and members.
  Reconfiguration(std::shared_ptr<Context> context, CommunicatorOptions options);

  // Returns the handle of this process, which is always the same. Opens all transports. Errors:
  // those of choosing a network and of opening the transports.
  Result<std::string> handle();

  // One call of reconfigure().
  struct Request {
    int64_t uuid = 0;                  // identifies this attempt; must not have been used before
    std::vector<std::string> handles;  // one of each member: by rank, or in any order
    bool ordered = true;      // `handles` are by rank; otherwise they are sorted to get ranks
    Milliseconds timeout{0};  // limit until all members have found each other
  };
  // A group that is forming, until its timeout at most. A failed attempt needs no close().
  struct Attempt {
    // Waits up to `time`. Returns success if the group has formed, the cause if it has failed, and
    // nothing if it takes longer. Once the bootstrap has ended, waits up to 10 s more for the
    // progress engine, which may have a notice that another member has aborted the attempt.
    std::optional<Error> wait_for(Milliseconds time) const;

    std::shared_ptr<Communicator> group;
    std::shared_ptr<GroupBootstrap> formation;
  };
  // Starts to form a group and returns at once. Errors come before anything is sent. It fails with
  // kInvalidArgument if the uuid was used before, a handle is invalid or given twice, or this
  // process' handle is missing. It fails with kMismatch if a handle has another wire version. Other
  // errors are those of Communicator::create(). Unless the handles are wrong, the uuid counts as
  // used afterwards, even after an error.
  Result<Attempt> begin(const Request& request);

  // Returns the options for later groups.
  CommunicatorOptions options() const {
    std::lock_guard lock(mutex_);
    return options_;
  }
  // Sets the timeout of ops in later groups.
  void set_timeout(Milliseconds timeout) {
    std::lock_guard lock(mutex_);
    options_.timeout = timeout;
  }

 private:
  // Decodes and checks the handles; returns them by rank. Sorted texts give all members the same
  // order, whatever the order in which they got the handles.
  Result<std::vector<ProcessHandle>> members(const Request& request) const;
  // Marks a uuid as used. Error: kInvalidArgument if it was used before.
  Error claim(int64_t uuid);

  const std::shared_ptr<Context> context_;
  const uint64_t instance_;  // random number that identifies this object in handles
  mutable std::mutex mutex_;
  CommunicatorOptions options_ RINGDIST_GUARDED_BY(mutex_);
  std::set<int64_t> used_ RINGDIST_GUARDED_BY(mutex_);  // uuids of earlier attempts
};

}  // namespace ringdist
