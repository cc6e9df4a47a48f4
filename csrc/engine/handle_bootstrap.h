// Formation of the processes that handles name: nothing is asked of a store. Who shares a host
// follows from what the handles say, and is proven; so all members find the same.
#pragma once

#include <memory>
#include <vector>

#include "engine/process_handle.h"
#include "engine/rank_info_bootstrap.h"

namespace ringdist {

class HandleBootstrap final : public RankInfoBootstrap {
 public:
  // `handles`: by rank; `nonce`: the group's name, which all give alike.
  HandleBootstrap(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                  const std::vector<ProcessHandle>& handles, uint64_t nonce, TimePoint deadline);

 private:
  uint64_t known_nonce() const override { return nonce_; }
  Result<ResolvedGroup> resolve() override;
  Error prove_neighbours(const Topology& topology);

  const uint64_t nonce_;
};

}  // namespace ringdist
