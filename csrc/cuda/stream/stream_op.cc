#include "cuda/stream/stream_op.h"

#include "cuda/stream/copies.h"

namespace ringdist::gpu {

Error StreamOp::begin() {
  const int64_t count = schedule.scratch_count;
  if (count == 0) return {};
  const auto memory = scratch.take(bytes(count));
  if (!memory.ok()) return memory.error();
  own_scratch_.append(memory.value(), count);
  // A barrier sends its scratch without writing to it.
  return cuda.clear(memory.value(), bytes(count), stream);
}

const Buffer& StreamOp::buffer(BufferId id) const {
  switch (id) {
    case BufferId::kInput:
      return op.input;
    case BufferId::kOutput:
      return op.output;
    case BufferId::kScratch:
      break;
  }
  return own_scratch_;
}

std::byte* StreamOp::whole(const Range& range) const {
  return range.count == 0 ? nullptr
                          : buffer(range.buffer).contiguous(range.offset, range.count).data();
}

Result<const std::byte*> StreamOp::read(const Range& range) {
  if (const std::byte* const there = whole(range)) return there;
  const auto copy = scratch.take(bytes(range.count));
  if (!copy.ok()) return copy.error();
  if (Error error =
          copy_out(cuda, buffer(range.buffer), range.offset, range.count, copy.value(), stream))
    return error;
  return static_cast<const std::byte*>(copy.value());
}

Result<std::byte*> StreamOp::place(const Range& range) {
  if (std::byte* const there = whole(range)) return there;
  return scratch.take(bytes(range.count));
}

Error StreamOp::write(const Range& range, const std::byte* from) {
  return copy_in(cuda, buffer(range.buffer), range.offset, range.count, from, stream);
}

}  // namespace ringdist::gpu
