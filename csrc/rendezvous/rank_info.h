// Data that a rank publishes when it creates a group: everything that other ranks need to reach it.
// Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "base/network_costs.h"

namespace ringdist {

// Addresses of one process, by the name of the transport.
using TransportAddresses = std::vector<std::pair<std::string, std::vector<std::byte>>>;

// Advice for processes with different credentials.
inline constexpr std::string_view kSameCredentials =
    "give all processes the same file by RINGDIST_KEY_FILE, or certificates of the same authority "
    "(RINGDIST_CA), or none";

// Entry of one rank in the store.
struct RankInfo {
  uint16_t wire_version = 0;  // first, so that every version can read it
  uint64_t context_id = 0;
  uint64_t nonce = 0;  // nonce of the group; rank 0 draws it, others send 0
  int32_t size = 0;
  int32_t lanes = 1;
  int32_t pid = 0;
  std::string host_name;    // for messages
  std::string host_key;     // equal keys claim the same host; a proof follows
  std::string unix_name;    // control plane, intra-host; "" without AF_UNIX sockets
  std::string tcp_address;  // control plane, inter-host
  bool guessed = false;     // the address may change once those of the others are available
  uint64_t options_hash = 0;
  std::string options;            // text of them, to name the difference in messages
  uint64_t key = 0;               // TlsKey::fingerprint(); 0 without credentials
  TransportAddresses transports;  // transports that are open; see Rendezvous::exchange()
  GroupCosts costs;               // rank 0's apply to the group

  // Serializes all fields.
  std::vector<std::byte> encode() const;
  // Parses an entry. Returns nothing if it is cut short or has impossible costs. If it has another
  // wire version, only that field is set.
  static std::optional<RankInfo> decode(ConstBytes bytes, uint16_t wire_version);

  // Returns "pid 123 on host x".
  std::string where() const;
};

// Checks if processes can form a group. `entries` are in the order of ranks, and `rank` is the
// caller's. Error: kMismatch, naming the difference. It may be the wire version, the size, the
// options, the key, or the costs if a rank other than rank 0 has a file of costs with other
// constants. Pure function.
Error compare_rank_infos(const std::vector<RankInfo>& entries, int rank);

}  // namespace ringdist
