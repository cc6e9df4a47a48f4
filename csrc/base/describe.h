// How messages name processes and ranks.
#pragma once

#include <string>
#include <string_view>

namespace ringdist {

// "pid 123 on host x"
std::string describe_process(int pid, const std::string& host_name);

// "rank 3 (pid 123 on host x)"; `where` is empty if nothing more is known.
std::string describe_rank(int rank, const std::string& where);

// Part of every message that tells of a peer that died, left or aborted: clients of other backends
// know a lost peer by these words.
inline constexpr std::string_view kClosedByPeer = "Connection closed by peer: ";

}  // namespace ringdist
