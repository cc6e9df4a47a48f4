// How the ranks of a group find each other and agree on who shares a host.
//
// Keys carry an incarnation, a count of how often this rank has created a group of these members
// under this store: so destroying and creating again, or other members under the same name, read no
// stale key. All ranks create the same groups in the same order, so their counts agree.
//
// publish() is one store.set and waits for nobody. collect() and agree_on_hosts() wait for the
// others, by asking the store again and again, so they run on a thread of their own, never on a
// lane.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/topology.h"
#include "rendezvous/rank_info.h"
#include "rendezvous/store.h"

namespace ringdist {

class Rendezvous {
 public:
  // `members` are the global ranks of the group: they are part of the keys.
  Rendezvous(std::shared_ptr<Store> store, int rank, std::vector<int> members);

  Error publish(const RankInfo& mine);

  // Tells those who wait for this rank, or will, that it does not come. After publish().
  // `process_ends`: those of its host believe it when its process has ended.
  Error publish_withdrawal(ErrorKind kind, const std::string& why, bool process_ends = false);

  // All entries, by rank, once all are there. Errors: kTimeout naming the ranks that did not come;
  // kMismatch naming what differs (wire version, size, options,
  // the costs of a file that a rank names and rank 0's); kAborted if it was cancelled; a
  // withdrawn rank's own kind and words.
  // `given_up`: why one need not wait any longer.
  Result<std::vector<RankInfo>> collect(const CancellableDeadline& deadline,
                                        const std::function<Error()>& given_up = nullptr);
  // Removes what this rank has published, except its count of incarnations unless the group comes
  // only once. After all ranks have found each other; blocks on the store.
  void remove_keys(bool only_once);
  // Whether that rank's entry is there. After publish().
  Result<bool> has_published(int rank) { return store_->check({key("entry", rank)}); }

  // The lowest rank of each claimed host asks the others with `prove` and publishes who answered;
  // who did not is a host of its own. All ranks read the same lists. `lost` says whether a process
  // that was proven to share our host has died since: its list would never come.
  Result<Topology> agree_on_hosts(const std::vector<RankInfo>& entries,
                                  const std::function<Error(const RankInfo&)>& prove,
                                  const std::function<Error(const RankInfo&)>& lost,
                                  const CancellableDeadline& deadline);

  // Returns what agree_on_hosts() does, if all lists are there by now; does not wait. Errors:
  // kTimeout, if they are not; the store's.
  Result<Topology> find_hosts(const std::vector<RankInfo>& entries);

  // For groups whose entries do not let all ranks reach each other: publishes the addresses of
  // `mine` in place of our entry's, and completes the entries by what the others publish. All ranks
  // call it, or none.
  Error exchange(const RankInfo& mine, std::vector<RankInfo>& entries,
                 const std::function<Error(const RankInfo&)>& lost,
                 const CancellableDeadline& deadline);

 private:
  // Of those ranks, the first to be lost.
  static Error find_lost(const std::vector<RankInfo>& entries, const std::vector<int>& ranks,
                         const std::function<Error(const RankInfo&)>& lost);
  Error set(const std::string& what, std::span<const std::byte> value);
  Error find_withdrawal(const CancellableDeadline& deadline);
  Result<Topology> topology_of(const std::vector<std::vector<std::byte>>& lists) const;
  static void await_end(int pid, const CancellableDeadline& deadline);
  std::string key(const std::string& what, int rank) const;
  std::vector<std::string> keys(const std::string& what, const std::vector<int>& ranks) const;
  // Of the keys of that name, once those of all these ranks are there. `what`: for whom waits too
  // long; `given_up`: why one need not wait any longer.
  Result<std::vector<std::vector<std::byte>>> await_values(
      const std::string& name, const std::vector<int>& ranks, const std::string& what,
      const CancellableDeadline& deadline, const std::function<Error()>& given_up = nullptr);

  const std::shared_ptr<Store> store_;
  const int rank_;
  const std::vector<int> members_;
  const int size_;
  std::vector<int> ranks_;  // all
  std::string prefix_;
  std::vector<std::string> keys_;  // that this rank has set
  RankInfo mine_;
};

// What a rank does that cannot create a group.

// Instead of Rendezvous::publish(): tells the others why it does not come, and counts this
// creation, as they do theirs, so that the next attempt of all meets.
Error publish_failure(Store& store, int rank, const std::vector<int>& members, const Error& why);

}  // namespace ringdist
