// Random ids: nobody can guess them, and no two processes have the same.
#pragma once

#include <sys/random.h>

#include <cstdint>

#include "base/check.h"

namespace ringdist {

// Returns an id that is never 0, so that 0 can mean "none". Any thread.
inline uint64_t random_id() {
  uint64_t id = 0;
  while (id == 0) {
    // Once the kernel is seeded, up to 256 bytes arrive complete, and signals do not interrupt the
    // call.
    ssize_t got = getrandom(&id, sizeof id, 0);
    check(got == static_cast<ssize_t>(sizeof id), "getrandom failed");
  }
  return id;
}

}  // namespace ringdist
