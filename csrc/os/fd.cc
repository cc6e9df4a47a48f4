#include "os/fd.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

namespace ringdist {

// The Hold covers both steps. A child that was forked between them would keep the descriptor open.
void Fd::reset() {
  int fd = std::exchange(fd_, -1);
  if (fd < 0 || mark_.forked()) return;
  fork_guard::Hold hold;
  fork_guard::remove(hold, fd);
  close(fd);
}

Error require_descriptors(size_t count, std::string_view what, size_t had) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  DIR* folder = opendir("/proc/self/fd");
  if (!folder && !(errno == EMFILE || errno == ENFILE)) return {};  // no /proc here
  const size_t most = limit.rlim_cur;
  size_t open = folder ? 0 : most;
  // Descriptors that were opened under a higher limit do not use up numbers below the present
  // limit.
  while (const dirent* entry = folder ? readdir(folder) : nullptr)
    if (entry->d_name[0] != '.') open += std::strtoul(entry->d_name, nullptr, 10) < most;
  if (folder) {
    closedir(folder);
    --open;  // the descriptor of the directory itself was counted
  }
  open -= std::min(open, had);
  if (open + count <= most) return {};
  return Error(ErrorKind::kSystem, std::string(what) + " needs about " + std::to_string(count) +
                                       " file descriptors, of " + std::to_string(most) + " " +
                                       std::to_string(open) + " are in use: raise 'ulimit -n' to " +
                                       std::to_string(open + count) + " or more");
}

}  // namespace ringdist
