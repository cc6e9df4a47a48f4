#include "engine/bootstrap/handle_bootstrap.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/describe.h"
#include "base/serialize.h"
#include "engine/op/message.h"
#include "rendezvous/rank_info.h"

namespace ringdist {
namespace {

constexpr std::string_view kPrefix = "ringdist:";
constexpr std::string_view kDigits = "0123456789abcdef";
constexpr size_t kShown = 40;  // characters to show of a text that is no handle

// Error for a text that is no handle.
Error no_handle(const std::string& text) {
  return {
      ErrorKind::kInvalidArgument,
      "'" + text.substr(0, kShown) + (text.size() > kShown ? "..." : "") +
          "' is no handle of a ringdist group: it must be what get_reconfigure_handle() returned"};
}

}  // namespace

std::string ProcessHandle::encode() const {
  std::string out(kPrefix);
  for (const std::byte byte : Writer().put(instance).put_bytes(entry.encode()).take()) {
    out += kDigits[static_cast<size_t>(byte) >> 4];
    out += kDigits[static_cast<size_t>(byte) & 15];
  }
  return out;
}

Result<ProcessHandle> ProcessHandle::decode(const std::string& text) {
  if (!text.starts_with(kPrefix) || (text.size() - kPrefix.size()) % 2 != 0) return no_handle(text);
  std::vector<std::byte> bytes;
  for (size_t i = kPrefix.size(); i < text.size(); i += 2) {
    const size_t high = kDigits.find(text[i]);
    const size_t low = kDigits.find(text[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return no_handle(text);
    bytes.push_back(static_cast<std::byte>(high << 4 | low));
  }
  Reader in(bytes);
  ProcessHandle out;
  out.instance = in.get<uint64_t>();
  auto entry = RankInfo::decode(in.get_bytes(), kWireVersion);
  if (!in.ended() || !entry) return no_handle(text);
  out.entry = std::move(*entry);
  if (out.entry.wire_version != kWireVersion)
    return Error(ErrorKind::kMismatch, "a handle is of wire version " +
                                           std::to_string(out.entry.wire_version) +
                                           "; this process has " + std::to_string(kWireVersion));
  return out;
}

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

// Handles already contain the addresses of all transports, so there is nothing to wait for.
Result<ResolvedGroup> HandleBootstrap::resolve() {
  if (size() == 1) return alone(nonce_);
  if (Error error = compare_rank_infos(entries(), rank())) return error;
  if (Error error = check_room(nonce_)) return error;
  Topology topology = claimed_topology();
  Error error = verify_same_host(topology);
  if (!error) error = check_separated(topology);
  if (!error) error = check_addresses();
  if (error) {
    introduce(nonce_);
    return error;
  }
  return found(nonce_, std::move(topology));
}

Error HandleBootstrap::verify_same_host(const Topology& topology) {
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
