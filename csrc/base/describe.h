// Names of processes and ranks in error messages and logs.
#pragma once

#include <string>
#include <string_view>

namespace ringdist {

// Returns "pid 123 on host x". A pid of 0 and an empty name are shown as "unknown".
std::string describe_process(int pid, const std::string& host_name);

// Returns "rank 3 (pid 123 on host x)". `where` may be empty; then the parentheses are left out.
std::string describe_rank(int rank, const std::string& where);

// Part of each message about a peer that died, left or aborted. Client code written for other
// backends recognizes a lost peer by these words.
inline constexpr std::string_view kClosedByPeer = "Connection closed by peer: ";

}  // namespace ringdist
