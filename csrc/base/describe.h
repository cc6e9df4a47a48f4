// How messages name processes and ranks.
#pragma once

#include <string>

namespace ringdist {

// "pid 123 on host x"
std::string describe_process(int pid, const std::string& host_name);

// "rank 3 (pid 123 on host x)"; `where` is empty if nothing more is known.
std::string describe_rank(int rank, const std::string& where);

}  // namespace ringdist
