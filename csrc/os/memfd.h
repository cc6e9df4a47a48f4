// Memory that processes share: a file without a name, passed from one to another by its descriptor
// (os/socket.h). Its size is sealed, so that nobody's access can run past its end, and only who
// made it can write. A forked child does not get the mapping.
#pragma once

#include <cstddef>

#include "base/buffers.h"
#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

// A mapped part of such a file. One thread at a time, as with any value; the memory itself is what
// its users make of it.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping() { reset(); }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // Maps at least `bytes`, at most what map_memory() was given; the memory may lie elsewhere then.
  // Error: kSystem.
  Error grow(size_t bytes);
  void reset();

 private:
  friend Result<Mapping> map_memory(const Fd& fd, size_t bytes, bool writable, size_t offset,
                                    size_t most);

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t most_ = 0;
  ForkMark mark_;
};

// `bytes` of address space; memory comes with allocate(). Error: kSystem.
Result<Fd> create_memory(const char* name, size_t bytes);
// Maps bytes of the file from `offset` on, which begins a page. The mapping may grow to `most`.
// Error: kSystem; kProtocol where the file is too small for that, or may shrink.
Result<Mapping> map_memory(const Fd& fd, size_t bytes, bool writable, size_t offset = 0,
                           size_t most = 0);
// From here on the file can be mapped for reading only; mappings that exist stay.
void seal_against_writing(const Fd& fd);
// Memory for this part of the file, now rather than at its first use, where to fail would be fatal.
Error allocate(const Fd& fd, size_t offset, size_t bytes);

}  // namespace ringdist
