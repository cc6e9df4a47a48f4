// Formation of ranks that know each other's entries, wherever those come from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/topology.h"
#include "engine/bootstrap/communicator_options.h"
#include "engine/bootstrap/group_bootstrap.h"
#include "rendezvous/rank_info.h"

namespace ringdist {

class RankInfoBootstrap : public GroupBootstrap {
 public:
  bool has_generations() const override { return true; }

 protected:
  RankInfoBootstrap(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                    TimePoint deadline);

  const CommunicatorOptions& options() const { return options_; }
  // By rank; set them before what follows, which is called by run() only.
  std::vector<RankInfo>& entries() { return entries_; }
  // Returns what this rank publishes; if `late`, with the transports that take long to open.
  // Errors: of a context that has no transports.
  Result<RankInfo> own_entry(bool late = false);
  // There are ranks on machines that claim to be different ones.
  bool spans_hosts() const;
  // Where this rank guessed by which network others reach it: that by which it reaches the first
  // rank that did not guess, or whose guess is not loopback. Once all entries are there.
  void correct_network();

  // For connections to the processes of this host. Who has all entries already, and looks for them
  // no more, is told over the control plane.
  Error check_room(uint64_t nonce);
  Error check_addresses() const;
  // Ranks of one host that have not found each other there.
  Error check_separated(const Topology& topology) const;
  // Whether that process shares this host, as it claims.
  Error prove(const RankInfo& peer);
  // A group of one.
  Result<ResolvedGroup> alone(uint64_t nonce);
  ResolvedGroup found(uint64_t nonce, Topology topology) const;

 private:
  Error choose_network();
  Error connect_members(ResolvedGroup& formed) override;
  void log_formed(const ResolvedGroup& formed) const override;

  const CommunicatorOptions options_;
  std::vector<RankInfo> entries_;
  std::optional<Context::Network> network_;  // once it is chosen
};

// Whether ranks can reach each other by what they have published: a pure function of that, so that
// all ranks of a group say the same.

// Some rank has no transport in common with some other that connects their hosts, and one that
// opens late may be it. `wanted`: only by that one; "": by any.
bool needs_late_transports(const std::vector<RankInfo>& entries, const Topology& topology,
                           const std::string& wanted);

}  // namespace ringdist
