// JoinAcceptor: a member's side of joins. It publishes the advertisement by which newcomers find
// the group, and keeps the queue of join requests. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "engine/bootstrap/communicator_options.h"
#include "engine/context/context.h"
#include "engine/membership/active_store.h"
#include "engine/membership/address_book.h"
#include "engine/membership/group_advertisement.h"
#include "membership/group_consensus.h"
#include "membership/paxos/decision.h"

namespace ringdist {

// Queue of join requests. A value, not thread-safe: JoinAcceptor locks it. All times are given by
// the caller.
class JoinQueue {
 public:
  bool is_open() const { return open_; }
  // Accepts join requests from here on.
  void open() { open_ = true; }

  // Records a join request; a newcomer repeats it until it is admitted. `number` is the one that it
  // has received from this process, or 0. `source` identifies the other end of its connection.
  // Returns true for the first request, after which the caller has to check the newcomer. Drops an
  // entry of more than 4 KiB. Also drops the request of a new process if 1024 others repeat theirs,
  // or 16 of that source.
  bool request_join(const Newcomer& newcomer, const std::string& source, uint64_t number,
                    TimePoint now);
  // Returns the number for a newcomer, drawn at its first request. There is none for others, and
  // none until it is checked.
  JoinAnswer answer(ProcessId process) const;
  // Marks a newcomer as checked. Its entry has the address at which it was found, and `host`
  // identifies its machine. It may join once all members vouch for it.
  void accept(const Newcomer& newcomer, const std::string& host);
  // Forgets a newcomer, so that its next request counts as the first.
  void remove(ProcessId process) { pending_.erase(process); }
  // Records that `member`, one of `members` present ones, reaches the newcomer and is reached by
  // it.
  void vouch(ProcessId process, ProcessId member, size_t members, TimePoint now);
  // Records that a process of that host was admitted and lost before it had joined. The host is
  // paused, each time twice as long as the last: from 2 s up to 1 minute.
  void fail(const std::string& host, TimePoint now);
  // Returns the newcomers that may join and still send requests, at most 128 of them.
  std::vector<Newcomer> waiting(TimePoint now) const;
  // Returns true if a newcomer may join and has waited for 150 ms, so that others that were started
  // with it have sent requests, too.
  bool is_due(TimePoint now) const;
  // Removes newcomers that have become members, and those that have stopped sending requests. The
  // others must be reached again, by all members of the new generation.
  void admit_members(const std::vector<ProcessId>& members, TimePoint now);

 private:
  // One newcomer.
  struct PendingJoin {
    JoinAnswer answer;
    std::string source;                   // other end of its connection
    TimePoint heard_at;                   // time of its last request
    bool accepted = false;                // checked by this member
    std::string entry;                    // encoded rank info, once it is checked
    std::set<ProcessId> vouched_by;       // members of the present generation
    std::optional<TimePoint> reached_at;  // since when all members vouch for it
    std::string host;
  };
  // Failed joins from one host.
  struct Failures {
    int count = 0;
    TimePoint until;  // no process of the host may join before
  };
  // Returns true if there is room for one more newcomer of that source. Silent ones make room.
  bool make_room(const std::string& source, TimePoint now);
  // Removes newcomers that have stopped sending requests.
  void drop_silent(TimePoint now);
  // Returns true if the newcomer may join at `now`.
  bool may_come(const PendingJoin& newcomer, TimePoint now) const;

  bool open_ = false;
  std::map<ProcessId, PendingJoin> pending_;
  std::map<std::string, Failures> failures_;  // by host
};

// Publishes the advertisement and answers the consensus' questions about newcomers. Held by
// shared_ptr, because tasks in the pool use it.
class JoinAcceptor final : public std::enable_shared_from_this<JoinAcceptor> {
 public:
  // `options` are those of the first generation, which give the group its name. The context must
  // outlive this object.
  JoinAcceptor(Context& context, const CommunicatorOptions& options, uint64_t group_id,
               std::shared_ptr<AddressBook> book)
      : context_(context), options_(options), group_id_(group_id), book_(std::move(book)) {}

  // Accepts newcomers, in this generation and later ones, while there are fewer members than
  // `most`, if that is not 0. They look for `job`, and receive `note` and the group's timeout. Rank
  // 0 writes the advertisement to the store; blocks. Errors: those of the store.
  Error admit(std::string job, std::string note, uint32_t most, Milliseconds timeout);
  bool admits() const {
    std::lock_guard lock(mutex_);
    return queue_.is_open();
  }
  uint32_t most() const {
    std::lock_guard lock(mutex_);
    return most_;
  }
  // Reports that a generation has begun and formed, and which store it uses. Rank 0 writes its
  // advertisement there, in the background.
  void present(uint32_t generation, const ResolvedGroup& found, std::shared_ptr<LazyStore> store);

  // Records a join request and returns the answer. New newcomers are checked on the task pool, at
  // the source of their connection and the port in their entry; until then they get no answer.
  JoinAnswer on_join_request(const Newcomer& newcomer, const MessageOrigin& from, uint64_t number);
  // Records that `member` vouches for a newcomer. The group has `members` members. Returns true if
  // a newcomer has waited long enough and the group is not full, so that the next generation should
  // begin.
  bool on_vouched(ProcessId newcomer, ProcessId member, size_t members);
  // Returns the newcomers that may join, without lost processes.
  std::vector<Newcomer> waiting() const;
  // Reports that the members have agreed on a generation. Also adds its newcomers to the address
  // book, which may block for two seconds each.
  void admit_members(const Decision& decision);
  // Records that a process was admitted and lost before it had joined. Its host is paused.
  void fail(ProcessId process);

 private:
  // The generation that newcomers can join.
  struct Current {
    uint32_t generation = 0;
    ResolvedGroup found;
    std::shared_ptr<LazyStore> store;
  };

  // Returns true if this rank writes advertisements.
  bool hosts() const RINGDIST_REQUIRES(mutex_) {
    return queue_.is_open() && present_ && present_->found.membership.rank == 0;
  }
  // Writes the latest advertisement to the store. Blocks.
  Error publish();
  Result<GroupAdvertisement> advertisement() const;
  // Compares the newcomer's options with those of the group, verifies whether it shares this host,
  // adds its address and lets it join. `local`: its connection is inside the host. Runs on the
  // pool.
  void look_at(const RankInfo& newcomer, bool local);
  // Returns a name for the host of a process: its address without the port, or its AF_UNIX name if
  // it shares this host. That name differs by process. Returns "" for a process without an address.
  std::string host_of(ProcessId process) const;

  Context& context_;
  const CommunicatorOptions options_;
  const uint64_t group_id_;
  const std::shared_ptr<AddressBook> book_;

  std::mutex publishing_;  // serializes publish(); locked before mutex_
  mutable std::mutex mutex_;
  JoinQueue queue_ RINGDIST_GUARDED_BY(mutex_);
  std::string job_ RINGDIST_GUARDED_BY(mutex_);
  std::string note_ RINGDIST_GUARDED_BY(mutex_);
  uint32_t most_ RINGDIST_GUARDED_BY(mutex_) = 0;  // largest number of members, or 0
  Milliseconds timeout_ RINGDIST_GUARDED_BY(mutex_){0};
  std::optional<Current> present_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
