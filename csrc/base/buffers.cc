#include "base/buffers.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace ringdist {

void Buffer::append(void* data, int64_t count) {
  if (count == 0) return;  // empty spans would make find() ambiguous
  spans_.push_back(static_cast<std::byte*>(data));
  ends_.push_back(this->count() + count);
}

size_t Buffer::find(int64_t offset) const {
  return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
}

Bytes Buffer::contiguous(int64_t offset, int64_t count) const {
  if (count == 0) return {};
  const size_t i = find(offset);
  check(i < spans_.size() && offset >= 0, "range outside its buffer");
  if (offset + count > ends_[i]) return {};
  const int64_t begin = i == 0 ? 0 : ends_[i - 1];
  return {spans_[i] + (offset - begin) * element_size_, static_cast<size_t>(count) * element_size_};
}

void Buffer::for_each(int64_t offset, int64_t count, const std::function<void(Bytes)>& fn) const {
  while (count > 0) {
    const size_t i = find(offset);
    check(i < spans_.size() && offset >= 0, "range outside its buffer");
    const int64_t n = std::min(count, ends_[i] - offset);
    fn(contiguous(offset, n));
    offset += n;
    count -= n;
  }
}

void Buffer::copy_to(int64_t offset, int64_t count, std::byte* out) const {
  for_each(offset, count, [&](Bytes piece) {
    std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
  });
}

void Buffer::copy_from(int64_t offset, int64_t count, const std::byte* in) const {
  for_each(offset, count, [&](Bytes piece) {
    std::memcpy(piece.data(), in, piece.size());
    in += piece.size();
  });
}

}  // namespace ringdist
