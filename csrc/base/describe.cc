#include "base/describe.h"

namespace ringdist {

std::string describe_process(int pid, const std::string& host_name) {
  return "pid " + (pid > 0 ? std::to_string(pid) : "unknown") + " on host " +
         (host_name.empty() ? "unknown" : host_name);
}

std::string describe_rank(int rank, const std::string& where) {
  return "rank " + std::to_string(rank) + (where.empty() ? "" : " (" + where + ")");
}

}  // namespace ringdist
