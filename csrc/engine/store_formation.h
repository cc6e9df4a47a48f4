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
  StoreFormation(std::shared_ptr<Context> context, const CommunicatorOptions& options);

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
  Error check_addresses(const Topology& topology) const;

  const CommunicatorOptions options_;
  Rendezvous rendezvous_;
  std::vector<Entry> entries_;  // by rank; of run()
};

}  // namespace ringdist
