#include "base/buffers.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace ringdist {

void Buffer::append(void* data, int64_t count) {
  if (count == 0) return;  // an empty span would make find() ambiguous
  const Span span{static_cast<std::byte*>(data), this->count(), this->count() + count};
  if (first_.end == 0)
    first_ = span;
  else
    more_.push_back(span);
}

// Binary search by the ends. Spans are adjacent and never empty, so the first one that ends after
// `offset` contains it.
const Buffer::Span& Buffer::find(int64_t offset) const {
  check(offset >= 0 && offset < count(), "range outside its buffer");
  if (offset < first_.end) return first_;
  return *std::ranges::upper_bound(more_, offset, {}, &Span::end);
}

Bytes Buffer::contiguous(int64_t offset, int64_t count) const {
  if (count == 0) return {};
  const Span& span = find(offset);
  if (offset + count > span.end) return {};
  return {span.data + (offset - span.begin) * element_size_,
          static_cast<size_t>(count) * element_size_};
}

void Buffer::for_each(int64_t offset, int64_t count, const std::function<void(Bytes)>& fn) const {
  while (count > 0) {
    const int64_t n = std::min(count, find(offset).end - offset);
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
