// Sets of CPUs: finding the CPUs near a device, and binding threads to CPUs. Any thread.
//
// A set holds at most 1024 CPUs, as cpu_set_t does. On kernels with more CPUs all queries return
// empty sets, and no thread is moved.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <optional>
#include <string>
#include <string_view>

namespace ringdist {

// Set of CPU numbers. A plain value.
class CpuSet {
 public:
  CpuSet() { CPU_ZERO(&set_); }

  // Parses a list as the kernel writes it: "0-3,8". Returns nothing if it is malformed.
  static std::optional<CpuSet> parse(std::string_view text);
  // Returns the CPUs of the NUMA node of a PCI device, such as "0000:17:00.0". On a machine with
  // one node these are all CPUs. Returns an empty set if the kernel does not report them in `sys`.
  static CpuSet near(const std::string& address, const std::string& sys = "/sys");
  // Returns the CPUs that the thread may run on. Returns an empty set if they cannot be read.
  static CpuSet of(pthread_t thread);

  bool empty() const { return CPU_COUNT(&set_) == 0; }
  bool operator==(const CpuSet& other) const { return CPU_EQUAL(&set_, &other.set_) != 0; }
  CpuSet operator&(const CpuSet& other) const;

  // Restricts the thread to this set. Returns false, without effect, if it may run on none of these
  // CPUs.
  bool bind(pthread_t thread) const;
  // Restricts the thread to the part of this set that it may already run on, so that an affinity
  // set by the user stays in force. Returns false, without effect, if that part is empty, is all
  // that the thread may run on, or is refused by the kernel.
  bool narrow(pthread_t thread) const;

 private:
  cpu_set_t set_;
};

// Restricts the calling thread to `cpus`, as far as it may run there, until the end of the scope.
// Memory that it touches first, and memory that a driver allocates for it, is then on their NUMA
// node. This fails if the process has another memory policy (set_mempolicy(2), which containers may
// not call).
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
