// Sets of CPUs: those near a device, and threads that stay on them. Any thread.
//
// Of at most 1024 CPUs, as cpu_set_t is: where the kernel has more, nothing is known, and no thread
// moves.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <optional>
#include <string>
#include <string_view>

namespace ringdist {

class CpuSet {
 public:
  CpuSet() { CPU_ZERO(&set_); }

  // "0-3,8", a list of the kernel's. Nothing where it is malformed.
  static std::optional<CpuSet> parse(std::string_view text);
  // Those of the NUMA node of a device of the PCI bus, "0000:17:00.0"; all, where the machine has
  // but one. Empty where the kernel, in `sys`, does not say.
  static CpuSet near(const std::string& address, const std::string& sys = "/sys");
  // Those that the thread may run on; empty if that is not known.
  static CpuSet of(pthread_t thread);

  bool empty() const { return CPU_COUNT(&set_) == 0; }
  bool operator==(const CpuSet& other) const { return CPU_EQUAL(&set_, &other.set_) != 0; }
  CpuSet operator&(const CpuSet& other) const;

  // The thread runs on these only; false, and nothing changes, where it may on none of them.
  bool bind(pthread_t thread) const;
  // The thread stays on those of them that it may run on already: whoever has pinned the process
  // has the last word. False, and nothing changes, where those are none, or all.
  bool narrow(pthread_t thread) const;

 private:
  cpu_set_t set_;
};

// The calling thread runs on some CPUs only, as far as it may, until the end of this object: memory
// that it is first to touch, and what a driver allocates for it, is of their NUMA node then, unless
// the process has another policy (set_mempolicy(2), which containers may not call).
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
