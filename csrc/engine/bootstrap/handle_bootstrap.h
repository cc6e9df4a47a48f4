// Formation of the processes that handles name: nothing is asked of a store. Who shares a host
// follows from what the handles say, and is proven; so all members find the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/bootstrap/rank_info_bootstrap.h"
#include "rendezvous/rank_info.h"

namespace ringdist {

// What a process tells of itself to whoever decides on the members of a group: an opaque text that
// is passed on by other means, and all that the others need to reach it. A value; any thread.
struct ProcessHandle {
  RankInfo entry;         // with the addresses of all transports
  uint64_t instance = 0;  // of several groups in one process: this one

  // Printable ASCII without spaces.
  std::string encode() const;
  // Errors: kInvalidArgument, it is none; kMismatch, of another wire version.
  static Result<ProcessHandle> decode(const std::string& text);
};

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
