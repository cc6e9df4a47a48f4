// A member's side of newcomers: the invitation by which they find the group, and who waits at its
// door. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "engine/bootstrap/communicator_options.h"
#include "engine/context/context.h"
#include "engine/membership/active_store.h"
#include "engine/membership/address_book.h"
#include "engine/membership/group_advertisement.h"
#include "membership/paxos/decision.h"

namespace ringdist {

// Who wants to become a member of a group. A value.
class JoinQueue {
 public:
  bool is_open() const { return open_; }
  // From now on newcomers may knock.
  void open() { open_ = true; }

  // A newcomer does so until it is let in. True: for the first time, so that it is to be looked at.
  // `reached`: by all present members, and it reaches them.
  bool request_join(const Newcomer& newcomer, bool reached, TimePoint now);
  // It has been looked at, and may come once it is reached; it is of that host.
  void accept(ProcessId process, const std::string& host);
  // A process of that host was let in and was lost before it had come. Its host waits twice as long
  // as the last time before another one is let in.
  void fail(const std::string& host, TimePoint now);
  // Who may come, and knocks still.
  std::vector<Newcomer> waiting(TimePoint now) const;
  // Somebody does, and those who began with it have had the time to knock, too.
  bool is_due(TimePoint now) const;
  // They are members; and those who knock no more are forgotten.
  void admit_members(const std::vector<ProcessId>& members, TimePoint now);

 private:
  struct PendingJoin {
    std::string entry;
    TimePoint heard_at;
    bool accepted = false;
    std::optional<TimePoint> reached_at;
    std::string host;
  };
  struct Failures {
    int count = 0;
    TimePoint until;
  };
  bool may_come(const PendingJoin& guest, TimePoint now) const;

  bool open_ = false;
  std::map<ProcessId, PendingJoin> pending_;
  std::map<std::string, Failures> failures_;  // by host
};

class JoinAcceptor final : public std::enable_shared_from_this<JoinAcceptor> {
 public:
  // `options`: of the first generation, which the lineage is named after. The context outlives it.
  JoinAcceptor(Context& context, const CommunicatorOptions& options, uint64_t group_id,
               std::shared_ptr<AddressBook> book)
      : context_(context), options_(options), group_id_(group_id), book_(std::move(book)) {}

  // From now on newcomers may come, in this generation and later ones; they look for the `job`, and
  // receive the note and the group's timeout. They come while there are fewer members than `most`,
  // if that is not 0. Rank 0 leaves the invitation in the store. Errors: the store's.
  Error admit(std::string job, std::string note, uint32_t most, Milliseconds timeout);
  bool admits() const {
    std::lock_guard lock(mutex_);
    return queue_.is_open();
  }
  uint32_t most() const {
    std::lock_guard lock(mutex_);
    return most_;
  }
  // That generation has begun and is formed, and uses that store: invitations are to it.
  void present(uint32_t generation, const ResolvedGroup& found, std::shared_ptr<LazyStore> store);

  // True: somebody has waited long enough. What there is to see of a newcomer is looked at
  // elsewhere.
  bool on_join_request(const Newcomer& newcomer, bool reached);
  // None of whom is known to be lost.
  std::vector<Newcomer> waiting() const;
  void admit_members(const Decision& decision);
  // Records that a process was let in and lost before it had come: its host has to wait.
  void fail(ProcessId process);

 private:
  struct Current {
    uint32_t generation = 0;
    ResolvedGroup found;
    std::shared_ptr<LazyStore> store;
  };

  bool hosts() const RINGDIST_REQUIRES(mutex_) {
    return queue_.is_open() && present_ && present_->found.membership.rank == 0;
  }
  Error publish();
  Result<GroupAdvertisement> invitation() const;
  // Finds out whether it shares this host; then lets it come, and answers it.
  void look_at(const RankInfo& newcomer);
  // Its address without the port; its control socket if it shares this host.
  std::string host_of(ProcessId process) const;

  Context& context_;
  const CommunicatorOptions options_;
  const uint64_t group_id_;
  const std::shared_ptr<AddressBook> book_;

  std::mutex publishing_;  // before mutex_
  mutable std::mutex mutex_;
  JoinQueue queue_ RINGDIST_GUARDED_BY(mutex_);
  std::string job_ RINGDIST_GUARDED_BY(mutex_);
  std::string note_ RINGDIST_GUARDED_BY(mutex_);
  uint32_t most_ RINGDIST_GUARDED_BY(mutex_) = 0;
  Milliseconds timeout_ RINGDIST_GUARDED_BY(mutex_){0};
  std::optional<Current> present_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
