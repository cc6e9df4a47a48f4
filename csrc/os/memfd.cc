#include "os/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace ringdist {
namespace {

// MFD_NOEXEC_SEAL (Linux 6.3) and F_SEAL_FUTURE_WRITE (Linux 5.1) are missing in older headers of
// the C library.
constexpr unsigned kNotExecutable = 0x0008;
constexpr int kSealFutureWrite = 0x0010;

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      most_(other.most_),
      mark_(other.mark_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this == &other) return *this;
  reset();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  most_ = other.most_;
  mark_ = other.mark_;
  return *this;
}

void Mapping::reset() {
  std::byte* data = std::exchange(data_, nullptr);
  // In a forked child, another mapping may have this address.
  if (data && !mark_.forked()) munmap(data, size_);
}

Error Mapping::grow(size_t bytes) {
  if (bytes <= size_) return {};
  check(bytes <= most_, "a mapping outgrows its file");
  void* data = mremap(data_, size_, bytes, MREMAP_MAYMOVE);
  if (data == MAP_FAILED) return system_error("mapping more of shared memory", errno);
  data_ = static_cast<std::byte*>(data);
  size_ = bytes;
  return {};
}

// Kernels before 6.3 reject kNotExecutable with EINVAL, so the second attempt leaves it out.
Result<Fd> create_memory(const char* name, size_t bytes) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd = Fd::open([&] { return memfd_create(name, flags | kNotExecutable); });
  if (!fd && errno == EINVAL) fd = Fd::open([&] { return memfd_create(name, flags); });
  if (!fd) return system_error("memfd_create", errno);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return system_error("setting the size of shared memory", errno);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return system_error("sealing shared memory", errno);
  return fd;
}

Result<Mapping> map_memory(const Fd& fd, size_t bytes, bool writable, size_t offset, size_t most) {
  struct stat file{};
  if (fstat(fd.get(), &file) != 0) return system_error("fstat", errno);
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  most = std::max(bytes, most);
  if (static_cast<size_t>(file.st_size) < offset + most || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0)
    return Error(ErrorKind::kProtocol, "shared memory that is too small, or may shrink");
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  // No child may be forked before madvise(): it would inherit the mapping.
  const fork_guard::Hold hold;
  void* data = mmap(nullptr, bytes, access, MAP_SHARED | MAP_NORESERVE, fd.get(),
                    static_cast<off_t>(offset));
  if (data == MAP_FAILED) return system_error("mmap", errno);
  madvise(data, bytes, MADV_DONTFORK);
  Mapping out;
  out.data_ = static_cast<std::byte*>(data);
  out.size_ = bytes;
  out.most_ = most;
  return out;
}

void seal_against_writing(const Fd& fd) {
  // Older kernels reject the seal. Peers could write then, but this library never does.
  (void)fcntl(fd.get(), F_ADD_SEALS, kSealFutureWrite);
}

Error allocate(const Fd& fd, size_t offset, size_t bytes) {
  // A signal undoes an interrupted call. Small parts make progress even under a frequent timer.
  constexpr size_t kMost = size_t{4} << 20;
  for (const size_t end = offset + bytes; offset < end;) {
    const size_t part = std::min(kMost, end - offset);
    if (fallocate(fd.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(part)) == 0)
      offset += part;
    else if (errno != EINTR)
      return system_error("fallocate of shared memory", errno);
  }
  return {};
}

}  // namespace ringdist
