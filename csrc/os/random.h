// Ids that nobody can guess and no two processes share.
#pragma once

#include <sys/random.h>

#include <cstdint>

#include "base/check.h"

namespace ringdist {

// Never 0, so that 0 can mean "none". Any thread.
inline uint64_t random_id() {
  uint64_t id = 0;
  while (id == 0) {
    // Up to 256 bytes come whole and without a signal's interruption once the kernel is seeded.
    ssize_t got = getrandom(&id, sizeof id, 0);
    check(got == static_cast<ssize_t>(sizeof id), "getrandom failed");
  }
  return id;
}

}  // namespace ringdist
