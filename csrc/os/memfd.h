// Shared memory: a file without a name. Its descriptor is passed from one process to another
// (os/socket.h). Its size is sealed, so that no access can run past its end. After
// seal_against_writing(), only the creator's mapping can write. A forked child does not get a
// Mapping.
#pragma once

#include <cstddef>

#include "base/buffers.h"
#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

// Owns a mapping of a part of such a file and unmaps it. One thread at a time, as with any value;
// access to the memory itself is up to its users.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping() { reset(); }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // Extends the mapping to at least `bytes`, at most the limit that map_memory() was given. It may
  // move, so data() changes. Error: kSystem.
  Error grow(size_t bytes);
  // Unmaps the memory. In a forked child it does nothing.
  void reset();

 private:
  friend Result<Mapping> map_memory(const Fd& fd, size_t bytes, bool writable, size_t offset,
                                    size_t most);

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t most_ = 0;
  ForkMark mark_;
};

// Creates a file of `bytes` and seals its size. It is address space only; allocate() provides the
// memory. `name` is for debugging. Error: kSystem.
Result<Fd> create_memory(const char* name, size_t bytes);
// Maps `bytes` of the file from `offset` on, which must be a multiple of the page size. The mapping
// may grow to `most` bytes; 0 means that it cannot grow. Error: kSystem, or kProtocol if the file
// is too small for that or not sealed against shrinking.
Result<Mapping> map_memory(const Fd& fd, size_t bytes, bool writable, size_t offset = 0,
                           size_t most = 0);
// Makes the file read-only for later mappings; existing ones stay writable. Kernels before 5.1
// ignore it.
void seal_against_writing(const Fd& fd);
// Allocates memory for this part of the file at once. Otherwise a lack of memory would show at the
// first access, as a fatal signal. Error: kSystem.
Error allocate(const Fd& fd, size_t offset, size_t bytes);

}  // namespace ringdist
