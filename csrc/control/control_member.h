#pragma once

#include <cstdint>
#include <string>

namespace ringdist {

// A rank of a group, as its store entry and the host proof tell. Several ranks may share a Context.
struct ControlMember {
  int rank = -1;
  uint64_t context_id = 0;
  int host = 0;  // index in the group's topology
  std::string unix_name;
  std::string tcp_address;
  int pid = 0;  // for messages only
  std::string host_name;
};

}  // namespace ringdist
