// HandleBootstrap: bootstrap of a group of given processes. Their handles replace the store. Ranks
// of one host follow from the handles and are verified, so all members find the same topology.
// Threads: as of GroupBootstrap.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/bootstrap/rank_info_bootstrap.h"
#include "rendezvous/rank_info.h"

namespace ringdist {

// Handle of a process: an opaque text with all that other processes need to reach it. Users pass it
// to the code that decides on the members of a group. A value; any thread.
struct ProcessHandle {
  RankInfo entry;         // with the addresses of all transports
  uint64_t instance = 0;  // identifies the Reconfiguration, as a process may have several

  // Returns printable ASCII without spaces.
  std::string encode() const;
  // Fails with kInvalidArgument if the text is no handle, and with kMismatch if its wire version
  // differs.
  static Result<ProcessHandle> decode(const std::string& text);
};

// The bootstrap of Reconfiguration.
class HandleBootstrap final : public RankInfoBootstrap {
 public:
  // `handles` are by rank. `nonce` is the group's nonce, which all members give alike.
  HandleBootstrap(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                  const std::vector<ProcessHandle>& handles, uint64_t nonce, TimePoint deadline);

 private:
  uint64_t known_nonce() const override { return nonce_; }
  Result<ResolvedGroup> resolve() override;
  // Verifies that the ranks that share this host according to their handles really do. Blocks for
  // up to two seconds per rank. Error: kPeerLost, which blames the first rank without an answer.
  Error verify_same_host(const Topology& topology);

  const uint64_t nonce_;
};

}  // namespace ringdist
