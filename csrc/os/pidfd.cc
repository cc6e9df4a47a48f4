#include "os/pidfd.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

namespace ringdist {

Result<Fd> open_pidfd(pid_t pid) {
  if (pid <= 0) return Error(ErrorKind::kSystem, "the process is in another pid namespace");
  // glibc 2.36 has no wrapper. The kernel sets close-on-exec itself.
  Fd fd = Fd::open([pid] { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); });
  if (!fd) return system_error("pidfd_open(" + std::to_string(pid) + ")", errno);
  return fd;
}

bool has_exited(const Fd& pidfd) {
  pollfd entry{pidfd.get(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

// The state follows the name of the program, which may contain anything (proc(5), stat).
bool is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  const size_t name_ends = text.rfind(") ");
  if (name_ends == std::string::npos || name_ends + 2 >= text.size()) return false;
  return text[name_ends + 2] == 'T' || text[name_ends + 2] == 't';
}

}  // namespace ringdist
