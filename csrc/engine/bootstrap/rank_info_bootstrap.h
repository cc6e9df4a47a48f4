// RankInfoBootstrap: base of bootstraps in which all ranks have the rank infos of all others. The
// subclass finds these; this class checks them and connects the members. Threads: as of
// GroupBootstrap.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/topology.h"
#include "engine/bootstrap/communicator_options.h"
#include "engine/bootstrap/group_bootstrap.h"
#include "rendezvous/rank_info.h"

namespace ringdist {

// Checks and connects ranks by their infos. The protected functions are called by publish() and
// run() only, on one thread at a time.
class RankInfoBootstrap : public GroupBootstrap {
 public:
  bool has_generations() const override { return true; }

 protected:
  RankInfoBootstrap(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                    TimePoint deadline);

  const CommunicatorOptions& options() const { return options_; }
  // Rank infos by rank. The subclass sets them before it calls the functions below.
  std::vector<RankInfo>& entries() { return entries_; }
  // Returns the info that this rank publishes. With `late`, it includes the transports that take
  // long to open. Errors: those of opening transports.
  Result<RankInfo> own_entry(bool late = false);
  // Returns true if some ranks claim to be on different machines. It compares their host keys, not
  // the verified topology.
  bool spans_hosts() const;
  // Corrects the network of this rank if it was guessed. Uses the route to the first rank that did
  // not guess, or else to the first with an address that is not loopback. Call it when all infos
  // are there.
  void correct_network();

  // Checks that this process has enough descriptors for the processes of this host. If not,
  // notifies the other ranks over the control plane: those with all infos do not read the store any
  // more.
  Error check_room(uint64_t nonce);
  // Returns the hosts that the ranks claim to be on, which are not verified.
  Topology claimed_topology() const;
  // Adds the group to the control plane, as one that this rank has left. The other ranks name it
  // when they connect: without it they would not get the notice that this rank has failed.
  void introduce(uint64_t nonce);
  // Fails with kSystem if a rank of a group of several hosts offers a loopback address.
  Error check_addresses() const;
  // Fails if two ranks claim one host, did not find each other there, and the higher one offers a
  // loopback address. With another address they reach each other as if on two hosts. Error:
  // kSystem if they run as different users, else kPeerLost.
  Error check_separated(const Topology& topology) const;
  // Verifies that `peer` shares this host, as it claims. Blocks for two seconds at most.
  Error prove(const RankInfo& peer);
  // Returns a group of this rank only.
  Result<ResolvedGroup> alone(uint64_t nonce);
  // Returns the group of the given infos, without transports.
  ResolvedGroup found(uint64_t nonce, Topology topology) const;

 private:
  // Sets network_, once. Errors: those of Context::network().
  Error choose_network();
  Error connect_members(ResolvedGroup& formed) override;
  void log_formed(const ResolvedGroup& formed) const override;

  const CommunicatorOptions options_;
  std::vector<RankInfo> entries_;
  std::optional<Context::Network> network_;  // set by choose_network() or correct_network()
};

// Pure function of the published infos, so all ranks of a group get the same result. Returns true
// if some pair of ranks has no common transport that connects their hosts, and a
// transport that opens late may help. `wanted` restricts transports; see is_wanted().
bool needs_late_transports(const std::vector<RankInfo>& entries, const Topology& topology,
                           const std::string& wanted);

}  // namespace ringdist
