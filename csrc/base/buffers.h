// Buffers and ranges of an op. A Buffer presents a list of memory spans as one index space of
// elements, so that a list of tensors needs no flattening copy. A Range names a part of one of an
// op's buffers.
//
// A Buffer does not own its memory, which must outlive it. It has no lock: any number of threads
// may read a Buffer that nobody appends to. Offsets and counts are in elements. A range outside the
// buffer is a bug and fails check().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ringdist {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

// Non-owning list of memory spans of one element type. Copies share the memory.
class Buffer {
 public:
  Buffer() = default;
  // `element_size` is in bytes.
  explicit Buffer(size_t element_size) : element_size_(element_size) {}

  // Adds `count` elements at `data` to the end of the index space. A count of 0 adds nothing.
  void append(void* data, int64_t count);

  int64_t count() const { return more_.empty() ? first_.end : more_.back().end; }
  size_t element_size() const { return element_size_; }

  // Returns the bytes of the elements [offset, offset + count) if they lie in one span. Otherwise,
  // and for a count of 0, returns an empty span with null data.
  Bytes contiguous(int64_t offset, int64_t count) const;

  // Calls fn for each contiguous piece of [offset, offset + count), in ascending order.
  void for_each(int64_t offset, int64_t count, const std::function<void(Bytes)>& fn) const;

  // Copy the elements [offset, offset + count) into `out`, or from `in` into this buffer. `out` and
  // `in` hold count * element_size() bytes and must not overlap the buffer.
  void copy_to(int64_t offset, int64_t count, std::byte* out) const;
  void copy_from(int64_t offset, int64_t count, const std::byte* in) const;

 private:
  // One piece of memory, and the elements [begin, end) of the index space that it holds.
  struct Span {
    std::byte* data = nullptr;
    int64_t begin = 0;
    int64_t end = 0;
  };
  const Span& find(int64_t offset) const;  // returns the span that contains `offset`

  size_t element_size_ = 1;
  Span first_;  // kept outside the vector, because most buffers have only one
  std::vector<Span> more_;
};

// Buffers that a schedule refers to. Scratch memory belongs to the op and holds intermediate
// results.
enum class BufferId : uint8_t { kInput, kOutput, kScratch };

// Range of elements of one buffer. Offset and count are 64-bit, because a tensor may have more than
// 2^31 elements.
struct Range {
  BufferId buffer = BufferId::kOutput;
  int64_t offset = 0;
  int64_t count = 0;

  int64_t end() const { return offset + count; }
  bool operator==(const Range&) const = default;
};

// Returns true if both ranges have an element in common.
inline bool overlaps(const Range& a, const Range& b) {
  return a.buffer == b.buffer && a.offset < b.end() && b.offset < a.end();
}

// Device on which the memory of an op lies, if it is not host memory, and the stream that the
// caller of the op uses.
struct DeviceStream {
  int device = 0;
  void* stream =
      nullptr;  // cudaStream_t; the op starts after the work that is already queued on it
};

}  // namespace ringdist
