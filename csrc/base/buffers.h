// A Buffer is a list of memory spans seen as one index space of elements, so that a list of tensors
// needs no flattening copy. It does not own the memory. A Range names a part of an op's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ringdist {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t element_size) : element_size_(element_size) {}

  // Adds `count` elements at `data` to the end of the index space.
  void append(void* data, int64_t count);

  int64_t count() const { return more_.empty() ? first_.end : more_.back().end; }
  size_t element_size() const { return element_size_; }

  // The elements [offset, offset + count) if they lie in one span, else an empty view with null
  // data.
  Bytes contiguous(int64_t offset, int64_t count) const;

  // Calls fn for each contiguous piece of [offset, offset + count), in order.
  void for_each(int64_t offset, int64_t count, const std::function<void(Bytes)>& fn) const;

  void copy_to(int64_t offset, int64_t count, std::byte* out) const;
  void copy_from(int64_t offset, int64_t count, const std::byte* in) const;

 private:
  // Elements [begin, end) of the index space.
  struct Span {
    std::byte* data = nullptr;
    int64_t begin = 0;
    int64_t end = 0;
  };
  const Span& find(int64_t offset) const;  // the one that holds it

  size_t element_size_ = 1;
  Span first_;  // most buffers have no other
  std::vector<Span> more_;
};

enum class BufferId : uint8_t { kInput, kOutput, kScratch };

// Elements, 64-bit.
struct Range {
  BufferId buffer = BufferId::kOutput;
  int64_t offset = 0;
  int64_t count = 0;

  int64_t end() const { return offset + count; }
  bool operator==(const Range&) const = default;
};

inline bool overlaps(const Range& a, const Range& b) {
  return a.buffer == b.buffer && a.offset < b.end() && b.offset < a.end();
}

// Where the memory of an op lies that is not the host's.

// A device, and the stream that the op's caller uses.
struct DeviceStream {
  int device = 0;
  void* stream = nullptr;  // cudaStream_t: the op comes after what it holds
};

}  // namespace ringdist
