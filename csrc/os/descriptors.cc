#include "os/descriptors.h"

#include <dirent.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

namespace ringdist {

Error require_descriptors(size_t count, std::string_view what) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  DIR* folder = opendir("/proc/self/fd");
  if (!folder && !(errno == EMFILE || errno == ENFILE)) return {};  // no /proc here
  size_t open = 0;
  while (folder && readdir(folder)) ++open;
  if (folder) closedir(folder);
  open -= folder ? 3 : 0;  // ".", ".." and the folder itself
  const size_t most = limit.rlim_cur;
  if (folder && open + count <= most) return {};
  return Error(ErrorKind::kSystem, std::string(what) + " needs about " + std::to_string(count) +
                                       " file descriptors, of " + std::to_string(most) + " " +
                                       std::to_string(folder ? open : most) +
                                       " are in use: raise 'ulimit -n'");
}

}  // namespace ringdist
