// Groups whose members their callers choose, one after the other: of the processes whose handles
// they give, which all get alike by other means. Any thread; one attempt at a time.
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

class Reconfiguration {
 public:
  // `options`: of all groups, but for rank, size and members.
  Reconfiguration(std::shared_ptr<Context> context, CommunicatorOptions options);

  // This process'; always the same. Opens all transports. Errors: of a context that has none.
  Result<std::string> handle();

  struct Request {
    int64_t uuid = 0;                  // of this attempt; no other had it
    std::vector<std::string> handles;  // by rank, or in any order
    bool ordered = true;               // else they are sorted
    Milliseconds timeout{0};           // until all members have found each other
  };
  // A group that forms, by its timeout. One that came to nothing need not be closed.
  struct Attempt {
    // Whether it has formed; nothing: it takes longer than that.
    std::optional<Error> wait_for(Milliseconds time) const;

    std::shared_ptr<Communicator> group;
    std::shared_ptr<GroupBootstrap> formation;
  };
  // Errors, before anything is sent: kInvalidArgument, the uuid was used before, a handle is none,
  // or is there twice, or this process' is missing; kMismatch, one is of another wire version.
  Result<Attempt> begin(const Request& request);

  CommunicatorOptions options() const {
    std::lock_guard lock(mutex_);
    return options_;
  }
  // Of operations of later groups.
  void set_timeout(Milliseconds timeout) {
    std::lock_guard lock(mutex_);
    options_.timeout = timeout;
  }

 private:
  Result<std::vector<ProcessHandle>> members(const Request& request) const;
  Error claim(int64_t uuid);

  const std::shared_ptr<Context> context_;
  const uint64_t instance_;
  mutable std::mutex mutex_;
  CommunicatorOptions options_ RINGDIST_GUARDED_BY(mutex_);
  std::set<int64_t> used_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
