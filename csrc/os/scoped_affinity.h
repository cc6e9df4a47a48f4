// The calling thread runs on some CPUs only, as far as it may, until the end of this object: memory
// that it is first to touch, and what a driver allocates for it, is of their NUMA node then, unless
// the process has another policy (set_mempolicy(2), which containers may not call).
#pragma once

#include <pthread.h>

#include "os/cpu_set.h"

namespace ringdist {

class ScopedAffinity {
 public:
  explicit ScopedAffinity(const CpuSet& cpus)
      : before_(CpuSet::of(pthread_self())), moved_(cpus.narrow(pthread_self())) {}
  ~ScopedAffinity() {
    if (moved_) (void)before_.bind(pthread_self());
  }
  ScopedAffinity(const ScopedAffinity&) = delete;
  ScopedAffinity& operator=(const ScopedAffinity&) = delete;

 private:
  const CpuSet before_;
  const bool moved_;
};

}  // namespace ringdist
