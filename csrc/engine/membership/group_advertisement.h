// GroupAdvertisement: the entry in the store by which newcomers find a group that accepts them.
// Rank 0 of each generation writes it. A value; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "control/control_groups.h"
#include "rendezvous/rank_info.h"

namespace ringdist {

// Contains the addresses of the members, and what a newcomer must have in common with them.
struct GroupAdvertisement {
  // Returns the store key. Jobs that share one store differ by name.
  static std::string key(const std::string& job) { return "ringdist/invitation/" + job; }

  // A member and the addresses of its control plane.
  struct Member {
    uint64_t process = 0;
    std::string unix_name;    // AF_UNIX name, for processes of its host
    std::string tcp_address;  // for other hosts
    std::string where;        // "pid 123 on host x"

    static Member of(const ControlMember& process);
    static Member of(const RankInfo& process);
  };

  RankInfo first;  // info of rank 0; its wire version, options and costs are the group's
  uint64_t group_id = 0;
  uint32_t generation = 0;
  std::string name;         // name of the group in its first generation
  Milliseconds timeout{0};  // default timeout of the group's ops
  std::string job;
  std::string note;   // given to admit() by the caller
  uint32_t most = 0;  // largest number of members, or 0 for no limit
  std::vector<Member> members;

  std::vector<std::byte> encode() const;
  // Decodes an advertisement. Returns nothing if it is malformed. If it has another wire version,
  // only that version is filled in.
  static std::optional<GroupAdvertisement> decode(ConstBytes bytes, uint16_t wire_version);

  // Returns why a process with that rank info cannot join the group (kMismatch), or success.
  Error refusal(const RankInfo& newcomer) const;
};

}  // namespace ringdist
