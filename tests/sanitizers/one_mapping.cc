// ThreadSanitizer identifies memory by its address, so it treats two mappings of one file as
// separate memories without races. In its builds, a file that is mapped from its beginning a second
// time therefore gets the first mapping again. The linker's --wrap redirects the calls to this
// file. It applies only to files as large as a Context's segment, because smaller ones belong to
// tests of the mappings themselves.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <utility>

extern "C" {
void* __real_mmap(void* at, size_t bytes, int access, int flags, int fd, off_t offset);
int __real_munmap(void* at, size_t bytes);
void* __wrap_mmap(void* at, size_t bytes, int access, int flags, int fd, off_t offset);
int __wrap_munmap(void* at, size_t bytes);
}

namespace {

struct Shared {
  void* at;
  size_t bytes;
  int access;
  pid_t process;  // a forked child has none of its parent's
  int users = 1;
};

using File = std::pair<dev_t, ino_t>;

constexpr off_t kLeastBytes = off_t{32} << 20;

std::mutex mutex;

std::map<File, Shared>& mappings() {
  static auto& known = *new std::map<File, Shared>;  // exit handlers unmap, too
  return known;
}

// A child must not find it held by a thread that it does not have. First of all handlers, as those
// of the library unmap in the child.
__attribute__((constructor(101))) void guard_forks() {
  pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
}

}  // namespace

void* __wrap_mmap(void* at, size_t bytes, int access, int flags, int fd, off_t offset) {
  struct stat file{};
  if ((flags & MAP_SHARED) == 0 || at != nullptr || offset != 0 || fstat(fd, &file) != 0 ||
      file.st_size < kLeastBytes)
    return __real_mmap(at, bytes, access, flags, fd, offset);
  const std::lock_guard lock(mutex);
  const File key(file.st_dev, file.st_ino);
  auto known = mappings().find(key);
  if (known != mappings().end() && known->second.process != getpid()) {
    mappings().erase(known);
    known = mappings().end();
  }
  if (known == mappings().end()) {
    void* mapped = __real_mmap(at, bytes, access, flags, fd, offset);
    if (mapped != MAP_FAILED) mappings().emplace(key, Shared{mapped, bytes, access, getpid()});
    return mapped;
  }
  Shared& shared = known->second;
  if (shared.bytes < bytes || (access & ~shared.access) != 0)
    return __real_mmap(at, bytes, access, flags, fd, offset);
  ++shared.users;
  return shared.at;
}

int __wrap_munmap(void* at, size_t bytes) {
  const std::lock_guard lock(mutex);
  for (auto it = mappings().begin(); it != mappings().end(); ++it) {
    Shared& shared = it->second;
    if (shared.at != at || shared.process != getpid()) continue;
    if (--shared.users > 0) return 0;
    bytes = shared.bytes;
    mappings().erase(it);
    break;
  }
  return __real_munmap(at, bytes);
}
