// Formation over the store: ranks read each other's entries there, and prove who shares a host.
#pragma once

#include <string>
#include <vector>

#include "base/topology.h"
#include "engine/communicator_options.h"
#include "engine/formation.h"
#include "rendezvous/rendezvous.h"

namespace ringdist {

class StoreFormation final : public Formation {
 public:
  // What is known beforehand of a group whose members were decided on.
  struct Decided {
    uint64_t nonce = 0;  // of the group; 0: rank 0 draws one
    std::vector<ContextId> members;
    int stay = 0;  // those from that rank on are newcomers, who come at once or never
  };

  StoreFormation(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                 Decided decided);

  bool has_generations() const override { return true; }
  // One add and one set. Errors: the store's; of a context that has no transports, which the others
  // are told.
  Error publish() override;

 private:
  Result<FoundGroup> find() override;
  Error reach(FoundGroup& formed) override;
  void leave_word(ErrorKind kind, const std::string& why, bool process_ends) override;
  void log_formed(const FoundGroup& formed) const override;
  // For connections to the processes of this host. Who has all entries already, and looks at the
  // store no more, is told over the control plane.
  Error check_room();
  // Of a decided group: a member is lost, or a newcomer has not come.
  Error find_missing(TimePoint begun);
  Error check_addresses(const Topology& topology) const;

  uint64_t drawn() const;

  const CommunicatorOptions options_;
  const Decided decided_;
  Rendezvous rendezvous_;
  std::vector<Entry> entries_;  // by rank; of run()
};

}  // namespace ringdist
