#include "os/fd.h"

#include <unistd.h>

namespace ringdist {

void Fd::reset() {
  int fd = std::exchange(fd_, -1);
  if (fd < 0 || mark_.forked()) return;
  fork_guard::Hold hold;
  fork_guard::remove(hold, fd);
  close(fd);
}

}  // namespace ringdist
