#include "os/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace ringdist {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<int> fds;
  std::atomic<uint64_t> generation{1};
};

void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

// Never destroyed, because descriptors are closed and forks happen during exit, too.
Registry& registry() {
  static Registry* instance = [] {
    auto* made = new Registry;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return made;
  }();
  return *instance;
}

// Makes the registry when the library is loaded. Otherwise, a child that is forked while another
// thread makes it would wait for ever.
[[maybe_unused]] const Registry& registry_at_load = registry();

void before_fork() { registry().mutex.lock(); }

void after_fork_in_parent() { registry().mutex.unlock(); }

// The lock has been held since before_fork(), so the list is consistent. Nothing here allocates
// memory.
void after_fork_in_child() {
  Registry& r = registry();
  r.generation.fetch_add(1, std::memory_order_relaxed);
  for (int fd : r.fds) close(fd);
  r.fds.clear();
  r.mutex.unlock();
}

}  // namespace

uint64_t process_generation() { return registry().generation.load(std::memory_order_relaxed); }

namespace fork_guard {

// The capacity at least doubles, so that descriptors which are opened one by one do not each copy
// the list.
Hold::Hold(size_t room) : lock_(registry().mutex) {
  std::vector<int>& fds = registry().fds;
  const size_t wanted = fds.size() + room;
  if (wanted > fds.capacity()) fds.reserve(std::max(wanted, 2 * fds.capacity()));
}

void add(const Hold&, int fd) noexcept { registry().fds.push_back(fd); }

void remove(const Hold&, int fd) noexcept { std::erase(registry().fds, fd); }

size_t count(const Hold&) noexcept { return registry().fds.size(); }

}  // namespace fork_guard
}  // namespace ringdist
