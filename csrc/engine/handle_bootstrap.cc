#include "engine/handle_bootstrap.h"

#include <map>
#include <string>
#include <utility>

#include "base/describe.h"
#include "rendezvous/compare_rank_infos.h"

namespace ringdist {
namespace {

// The host on which it can be proven to be; without sockets of AF_UNIX it is one of its own.
std::string claim(const RankInfo& entry) {
  return entry.host_key + (entry.unix_name.empty() ? std::to_string(entry.context_id) : "");
}

}  // namespace

HandleBootstrap::HandleBootstrap(std::shared_ptr<Context> context,
                                 const CommunicatorOptions& options,
                                 const std::vector<ProcessHandle>& handles, uint64_t nonce,
                                 TimePoint deadline)
    : RankInfoBootstrap(std::move(context), options, deadline), nonce_(nonce) {
  for (const ProcessHandle& handle : handles) {
    entries().push_back(handle.entry);
    entries().back().size = size();
  }
}

Result<ResolvedGroup> HandleBootstrap::resolve() {
  if (size() == 1) return alone(nonce_);
  if (Error error = compare_rank_infos(entries(), rank())) return error;
  if (Error error = check_room(nonce_)) return error;
  std::vector<std::vector<int>> hosts;
  std::map<std::string, size_t> host_of;
  for (int one = 0; one < size(); ++one) {
    const auto [host, is_new] = host_of.emplace(claim(entries()[one]), hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[host->second].push_back(one);
  }
  auto topology = Topology::from_hosts(std::move(hosts), size());
  if (Error error = prove_neighbours(topology)) return error;
  if (Error error = check_separated(topology)) return error;
  if (Error error = check_addresses()) return error;
  return found(nonce_, std::move(topology));
}

Error HandleBootstrap::prove_neighbours(const Topology& topology) {
  for (int one = 0; one < size(); ++one) {
    const RankInfo& entry = entries()[one];
    if (!topology.same_host(rank(), one) || entry.context_id == context().id()) continue;
    if (const Error error = prove(entry))
      return Error(ErrorKind::kPeerLost,
                   describe_rank(one, entry.where()) +
                       " does not answer on its control socket: its process has most likely "
                       "ended (" +
                       error.message() + ")")
          .blame(one);
  }
  return {};
}

}  // namespace ringdist
