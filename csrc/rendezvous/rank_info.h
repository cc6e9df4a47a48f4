// What a rank publishes about itself when it creates a group: all that the others need to reach it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "base/network_costs.h"

namespace ringdist {

// By name, of one process.
using TransportAddresses = std::vector<std::pair<std::string, std::vector<std::byte>>>;

struct RankInfo {
  uint16_t wire_version = 0;  // first: readable by every version
  uint64_t context_id = 0;
  uint64_t nonce = 0;  // the group's; rank 0 draws it, 0 elsewhere
  int32_t size = 0;
  int32_t lanes = 1;
  int32_t pid = 0;
  std::string host_name;    // for messages
  std::string host_key;     // equal keys claim the same host; the claim is proven later
  std::string unix_name;    // control plane inside a host
  std::string tcp_address;  // control plane between hosts
  bool guessed = false;     // the address, until this rank knows those of the others
  uint64_t options_hash = 0;
  std::string options;            // as text, to name the difference
  TransportAddresses transports;  // those that were open; see Rendezvous::exchange()
  GroupCosts costs;               // rank 0's are the group's

  std::vector<std::byte> encode() const;
  // Nothing of one that is cut short; of another wire version nothing but that.
  static std::optional<RankInfo> decode(ConstBytes bytes, uint16_t wire_version);

  // "pid 123 on host x"
  std::string where() const;
};

// Whether processes can be a group. A pure function.

// By rank; `rank` asks. kMismatch, naming what differs: wire version, size, options; the costs of a
// file that a rank names, and rank 0's.
Error compare_rank_infos(const std::vector<RankInfo>& entries, int rank);

}  // namespace ringdist
