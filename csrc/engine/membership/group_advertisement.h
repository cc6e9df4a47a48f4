// What a group that takes newcomers leaves in the store for them: rank 0 of each generation does.
// A value; any thread.
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

struct GroupAdvertisement {
  // Of the jobs that use one store, by name.
  static std::string key(const std::string& job) { return "ringdist/invitation/" + job; }

  struct Member {
    uint64_t process = 0;
    std::string unix_name;    // where its control plane listens: inside its host,
    std::string tcp_address;  // and for other hosts
    std::string where;        // "pid 123 on host x"

    static Member of(const ControlMember& process);
    static Member of(const RankInfo& process);
  };

  RankInfo first;  // rank 0's: its wire version, options and costs are the group's
  uint64_t group_id = 0;
  uint32_t generation = 0;
  std::string name;         // the group's in its first generation
  Milliseconds timeout{0};  // the group's
  std::string job;
  std::string note;   // the caller's of admit()
  uint32_t most = 0;  // of its members; 0: any number
  std::vector<Member> members;

  std::vector<std::byte> encode() const;
  // Of another wire version only that can be read; nothing of what is no invitation.
  static std::optional<GroupAdvertisement> decode(ConstBytes bytes, uint16_t wire_version);

  // Why a process with that entry cannot come to the group; kMismatch.
  Error refusal(const RankInfo& newcomer) const;
};

}  // namespace ringdist
