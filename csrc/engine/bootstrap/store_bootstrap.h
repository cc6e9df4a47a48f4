// Formation over the store: ranks read each other's entries there, and prove who shares a host.
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

class StoreBootstrap final : public RankInfoBootstrap {
 public:
  // What is known beforehand of a group whose members were decided on.
  struct Decided {
    uint64_t nonce = 0;  // of the group; 0: rank 0 draws one
    std::vector<ContextId> members;
    int survivor_count = 0;  // those from that rank on are newcomers, who come at once or never
  };

  StoreBootstrap(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                 Decided decided);

  // One add and one set. Errors: the store's; of a context that has no transports, which the others
  // are told.
  Error publish() override;

 private:
  uint64_t known_nonce() const override { return decided_.nonce; }
  Result<ResolvedGroup> resolve() override;
  // Of a decided group: its members were there, so it is theirs who do not answer, or of the store
  // that was, which the next generation does without.
  Error on_member_error(const Error& error) const override;
  void publish_withdrawal(ErrorKind kind, const std::string& why, bool process_ends) override;
  void remove_words() override { rendezvous_.remove_keys(decided_.nonce != 0); }
  // Of a decided group: a member is lost, or a newcomer has not come.
  Error find_missing(TimePoint begun);

  uint64_t drawn() const;
  Duration peer_timeout();

  const Decided decided_;
  Rendezvous rendezvous_;
};

// What the group of a decided generation is to be made of. A value.
struct NextGroupSpec {
  // Where `needs_rendezvous`: of it only what was decided, which is the nonce and the members.
  ResolvedGroup found;
  bool needs_rendezvous = false;  // the members find each other by the store
  int survivor_count = 0;         // the first so many were members before; the others come now

  std::shared_ptr<GroupBootstrap> formation(std::shared_ptr<Context> context,
                                            const CommunicatorOptions& options) const;
};

}  // namespace ringdist
