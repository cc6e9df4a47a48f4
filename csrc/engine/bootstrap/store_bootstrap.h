// StoreBootstrap: bootstrap by a rendezvous in the store. Ranks read each other's infos there, and
// verify which ranks share a host. Threads: as of GroupBootstrap.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/bootstrap/communicator_options.h"
#include "engine/bootstrap/group_bootstrap.h"
#include "engine/bootstrap/rank_info_bootstrap.h"
#include "engine/context/context.h"
#include "rendezvous/rendezvous.h"

namespace ringdist {

// The bootstrap of a first generation, and of later ones with newcomers.
class StoreBootstrap final : public RankInfoBootstrap {
 public:
  // Facts that the members of the generation before have agreed on. Empty for a first generation.
  struct Decided {
    uint64_t nonce = 0;  // the group's nonce; if 0, rank 0 draws one
    std::vector<ContextId> members;
    int survivor_count = 0;  // ranks from this one on are newcomers, which come soon or never
  };

  StoreBootstrap(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                 Decided decided);

  // Publishes this rank with one add and one set on the store. If its transports cannot be opened,
  // publishes this failure to the others. Errors: those of the store and of opening transports.
  Error publish() override;

 private:
  uint64_t known_nonce() const override { return decided_.nonce; }
  Result<ResolvedGroup> resolve() override;
  // In a later generation, a timeout or store error means that members or the store were lost.
  // Converts it to kPeerLost, so that a further generation can go on without them.
  Error on_member_error(const Error& error) const override;
  void publish_withdrawal(ErrorKind kind, const std::string& why, bool process_ends) override;
  void remove_keys() override { rendezvous_.remove_keys(decided_.nonce != 0); }
  // In a later generation, returns an error if a member is lost or a newcomer has not come in time.
  // `begun` is the time when resolve() began. Queries the store once the peer timeout has passed.
  Error find_missing(TimePoint begun);

  // Returns the nonce that this rank publishes as rank 0.
  uint64_t drawn() const;
  // Returns the setting RINGDIST_PEER_TIMEOUT, which is given in seconds.
  Duration peer_timeout();

  const Decided decided_;
  Rendezvous rendezvous_;
};

// Specification of a generation's group, as its members have agreed on it. A value.
struct NextGroupSpec {
  // If `needs_rendezvous` is set, it lacks topology, processes and transports, and of the members
  // only the contexts count.
  ResolvedGroup found;
  bool needs_rendezvous = false;  // members find each other through the store
  int survivor_count = 0;  // the first so many ranks were members before; the others are newcomers

  // Makes the bootstrap of the group: AgreedBootstrap, or StoreBootstrap if it needs a rendezvous.
  std::shared_ptr<GroupBootstrap> formation(std::shared_ptr<Context> context,
                                            const CommunicatorOptions& options) const;
};

}  // namespace ringdist
