// Names of processes and ranks in error messages and logs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ringdist {

// Returns "pid 123 on host x". A pid of 0 and an empty name are shown as "unknown".
std::string describe_process(int pid, const std::string& host_name);

// Returns an id of a process or group as 16 hexadecimal digits: "0123456789abcdef".
std::string format_id(uint64_t id);

// Returns "rank 3 (pid 123 on host x)". `where` may be empty; then the parentheses are left out.
std::string describe_rank(int rank, const std::string& where);

// Returns at most about `most` bytes of a text of another process, so that it can be shown. Control
// characters and bytes that are not UTF-8 appear as "\x1b", and lines after the first one are
// indented. So it can neither drive a terminal nor forge a line of a log.
std::string printable(std::string_view text, size_t most);

// Part of each message about a peer that died, left or aborted. Client code written for other
// backends recognizes a lost peer by these words.
inline constexpr std::string_view kClosedByPeer = "Connection closed by peer: ";

}  // namespace ringdist
