#include "os/shared_block.h"

#include <sys/mman.h>

#include <cerrno>

#include "os/memfd.h"

namespace ringdist {

Result<std::shared_ptr<SharedBlock>> SharedBlock::map(Fd file, size_t bytes) {
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (data == MAP_FAILED) return system_error("mmap", errno);
  madvise(data, bytes, MADV_HUGEPAGE);  // where the system lets shared memory have them
  seal_against_writing(file);
  return std::shared_ptr<SharedBlock>(
      new SharedBlock(std::move(file), static_cast<std::byte*>(data), bytes));
}

bool SharedBlock::contains(ConstBytes range) const {
  return range.data() >= data_ && range.size() <= size_ &&
         range.data() <= data_ + (size_ - range.size());
}

void SharedBlock::free() {
  if (!freed_.exchange(true, std::memory_order_acq_rel)) munmap(data_, size_);
}

}  // namespace ringdist
