// Rendezvous of the ranks of a group through the store: they exchange their rank infos and agree
// which ranks share a host.
//
// Keys contain an incarnation number. It counts how often this rank has created a group of these
// members under this store. So groups that are created again, or groups of other members with the
// same name, read no stale keys. All ranks create the same groups in the same order, so their
// counts agree.
//
// publish() is one add and one set on the store, and does not wait for other ranks. collect(),
// agree_on_hosts() and exchange() poll the store until the other ranks have published. So they run
// on a thread of their own, never on a lane.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/topology.h"
#include "os/tls_key.h"
#include "rendezvous/rank_info.h"
#include "rendezvous/store.h"

namespace ringdist {

// One rank's side of the rendezvous for one group. One thread at a time.
class Rendezvous {
 public:
  // `members` are the global ranks of the group, which are part of the keys. `rank` is an index
  // into them. If `key` is a certificate, the values of all ranks are signed. A rank then needs a
  // certificate for its global rank, unless `compares_ranks` is false. A signed value counts for
  // the group of this name only.
  Rendezvous(std::shared_ptr<Store> store, int rank, std::vector<int> members,
             std::shared_ptr<const TlsKey> key = nullptr, bool compares_ranks = true,
             const std::string& group = "");

  // Counts this creation of the group and publishes `mine`. Does not wait. Errors: the store's.
  Error publish(const RankInfo& mine);

  // Publishes that this rank will not take part, for ranks that wait for it or will do so. Call it
  // after publish(); before that it does nothing. If `process_ends`, ranks of the same host report
  // it only when the process has ended, at most 5 s later. If the group already has a withdrawal,
  // that one is kept.
  Error publish_withdrawal(ErrorKind kind, const std::string& why, bool process_ends = false);

  // Waits for the entries of all ranks and returns them in the order of ranks. `given_up` is
  // polled: an error that it returns ends the wait.
  //
  // Errors: kTimeout, naming the ranks that have not come, and kMismatch as in
  // compare_rank_infos(), or if the certificate of a rank is not for it. If the wait is cancelled,
  // it is kAborted. If a rank has withdrawn, the error has its kind and its message. But if all
  // entries exist, they are returned, and the next wait reports the withdrawal.
  Result<std::vector<RankInfo>> collect(const CancellableDeadline& deadline,
                                        const std::function<Error()>& given_up = nullptr);
  // Removes the keys that this rank has published. The incarnation count is removed only if
  // `only_once`, which means that the group is created only once. Call it after all ranks have
  // found each other. Blocks on the store.
  void remove_keys(bool only_once);
  // Returns true if that rank's entry exists. Call it after publish().
  Result<bool> has_published(int rank) { return store_->check({key("entry", rank)}); }

  // Determines which ranks share a host. The lowest rank of each claimed host verifies the others
  // with `prove` and publishes a list of those that passed. A rank that did not pass is a host of
  // its own. All ranks read the same lists.
  //
  // `lost` returns an error if a process that was proven to share this host has died, because its
  // list would never come. Errors are those of collect(), and kProtocol for invalid lists.
  Result<Topology> agree_on_hosts(const std::vector<RankInfo>& entries,
                                  const std::function<Error(const RankInfo&)>& prove,
                                  const std::function<Error(const RankInfo&)>& lost,
                                  const CancellableDeadline& deadline);

  // Returns the result of agree_on_hosts() without waiting. Errors: kTimeout, if some lists are
  // missing, and those of the store.
  Result<Topology> find_hosts(const std::vector<RankInfo>& entries);

  // Exchanges addresses a second time, for groups in which the entries do not let all ranks reach
  // each other. Publishes the addresses of `mine`, waits for those of all ranks and replaces those
  // in `entries`. Either all ranks call it, or none.
  Error exchange(const RankInfo& mine, std::vector<RankInfo>& entries,
                 const std::function<Error(const RankInfo&)>& lost,
                 const CancellableDeadline& deadline);

 private:
  // Returns an error about the first of `ranks` that `lost` reports.
  static Error find_lost(const std::vector<RankInfo>& entries, const std::vector<int>& ranks,
                         const std::function<Error(const RankInfo&)>& lost);
  // Publishes a value under this rank's key for `what`.
  Error set(const std::string& what, std::span<const std::byte> value);
  // Returns an error if another rank has published a withdrawal.
  Error find_withdrawal(const CancellableDeadline& deadline);
  // Returns the values of keys that are there, of those ranks. Errors: those of keys_differ() and
  // check_signer(), too.
  Result<std::vector<std::vector<std::byte>>> read(const std::vector<std::string>& keys,
                                                   const std::vector<int>& ranks);
  // Checks that a rank may have this certificate, and has no other one for another value.
  Error check_signer(int rank, const Certificate& signer);
  // Returns the error about a rank that has signed with the certificate of another one.
  static Error wrong_signer(int rank, const Certificate& signer, const std::string& why);
  // Returns the error for a rank that does not have the key of this rank: "rank X" + `has` + "rank
  // Y" + `other`, where Y is this rank.
  Error keys_differ(int rank, const std::string& has, const std::string& other) const;
  // Builds the topology from the lists of all hosts.
  Result<Topology> topology_of(const std::vector<std::vector<std::byte>>& lists) const;
  // Waits until a process of this host has ended, at most 5 s or until the deadline.
  static void await_end(int pid, const CancellableDeadline& deadline);
  std::string key(const std::string& what, int rank) const;
  std::vector<std::string> keys(const std::string& what, const std::vector<int>& ranks) const;
  // Waits for the keys `name` of these ranks and returns their values. `what` names them in the
  // timeout's message. An error of `given_up` ends the wait.
  Result<std::vector<std::vector<std::byte>>> await_values(
      const std::string& name, const std::vector<int>& ranks, const std::string& what,
      const CancellableDeadline& deadline, const std::function<Error()>& given_up = nullptr);

  const std::shared_ptr<Store> store_;
  const int rank_;
  const std::vector<int> members_;
  const int size_;
  std::vector<int> ranks_;  // 0, 1, ..., size_ - 1
  std::string prefix_;
  const std::shared_ptr<const TlsKey> signing_;  // null without a certificate
  const bool compares_ranks_;
  const std::string scope_;             // begins the names under which values are signed
  std::map<int, Certificate> signers_;  // certificates of ranks
  std::vector<std::string> keys_;       // keys that this rank has set
  RankInfo mine_;
};

// Publishes that this rank cannot create the group, and why. It replaces Rendezvous::publish(). It
// also counts this creation, so that the ranks' counts still agree in the next attempt.
Error publish_failure(Store& store, int rank, const std::vector<int>& members, const Error& why);

}  // namespace ringdist
