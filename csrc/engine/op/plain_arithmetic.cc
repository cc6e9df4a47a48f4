// Arithmetic of ops without compression: values are sent unencoded. A reduce makes one pass over
// memory. It reads own values in the op's buffers and received values where the transport put them.
#include <algorithm>
#include <cstring>
#include <source_location>
#include <vector>

#include "base/check.h"
#include "engine/op/arithmetic.h"
#include "kernel/copy.h"
#include "kernel/reduce.h"

namespace ringdist {
namespace {

// Bytes that reduce_twice() sums before it stores them a second time; few enough for the nearest
// cache.
constexpr size_t kTwinBytes = 16384;

// Implements Arithmetic for ops without a codec map. Sizes of messages are exact, and decoding
// cannot fail.
class PlainArithmetic final : public Arithmetic {
 public:
  PlainArithmetic(const Op& op, int size, StoreMode stores, const ArithmeticMemory& memory)
      : op_(op),
        size_(size),
        stores_(stores),
        pool_(memory.scratch),
        scratch_(dtype_size(op.request.dtype)),
        sources_(&memory.objects),
        gathered_(&memory.objects) {
    const int64_t count = op.schedule->scratch_count;
    if (count == 0) return;
    scratch_memory_ = PooledBuffer(pool_, static_cast<size_t>(count) * scratch_.element_size());
    scratch_.append(scratch_memory_.bytes().data(), count);
    // A barrier sends its scratch without writing it first.
    if (op.request.kind == Collective::kBarrier)
      std::ranges::fill(scratch_memory_.bytes(), std::byte{0});
  }

  size_t message_bytes(int step, int64_t segment) const override {
    return static_cast<size_t>(range(step, segment).count) * scratch_.element_size();
  }
  bool accepts(int step, int64_t segment, size_t bytes) const override {
    return bytes == message_bytes(step, segment);
  }
  // The first segment is never shorter than the others.
  size_t most_bytes(int step) override { return message_bytes(step, 0); }
  size_t mean_bytes(int step) override { return message_bytes(step, 0); }

  size_t encode(int, int64_t, Bytes) override {
    check_failed("no codec", std::source_location::current());
  }
  ConstBytes view(int step, int64_t segment, PooledBuffer& held) override {
    const Range part = range(step, segment);
    const ConstBytes bytes = contiguous(part, held);
    if (!held && part.buffer == BufferId::kScratch) held = scratch_memory_;
    return bytes;
  }

  Error reduce(int step, int64_t segment, std::span<const ConstBytes> arrived,
               PooledBuffer&) override;
  void reduce_twice(int step, int64_t segment, std::span<const ConstBytes> arrived,
                    Bytes twin) override;
  Error place(int step, int64_t segment, ConstBytes arrived, PooledBuffer&) override {
    const Range part = range(step, segment);
    const Bytes to = buffer(part.buffer).contiguous(part.offset, part.count);
    if (to.data() != nullptr)
      ringdist::copy(to.data(), arrived.data(), to.size(), stores_);
    else
      buffer(part.buffer).copy_from(part.offset, part.count, arrived.data());
    return {};
  }
  Error copy(int step, int64_t segment, PooledBuffer&) override;

 private:
  const Step& description(int step) const { return op_.schedule->steps[step].step; }
  // Returns the elements of `of` that the segment covers.
  Range slice(int step, const Range& of, int64_t segment) const {
    return op_.schedule->slice(step, of, segment);
  }
  Range range(int step, int64_t segment) const {
    return slice(step, description(step).range, segment);
  }
  const Buffer& buffer(BufferId id) const;
  // Returns the elements as one view.
  ConstBytes contiguous(const Range& part, PooledBuffer& held) const;
  // Fills `sources_` with the operands of the segment.
  void find_sources(int step, int64_t segment, std::span<const ConstBytes> arrived);
  // Reduces `count` elements of the current operands into `to`.
  void add_up(int step, std::byte* to, int64_t count) const;

  const Op& op_;
  const int size_;
  const StoreMode stores_;
  const std::shared_ptr<ScratchPool> pool_;
  PooledBuffer scratch_memory_;
  Buffer scratch_;
  // Operands of the segment that is being reduced, and copies of those that lay in pieces.
  std::pmr::vector<const std::byte*> sources_;
  std::pmr::vector<PooledBuffer> gathered_;
};

const Buffer& PlainArithmetic::buffer(BufferId id) const {
  switch (id) {
    case BufferId::kInput:
      return op_.request.input;
    case BufferId::kOutput:
      return op_.request.output;
    case BufferId::kScratch:
      break;
  }
  return scratch_;
}

// If the part straddles several spans of the buffer, it is copied into `held`.
ConstBytes PlainArithmetic::contiguous(const Range& part, PooledBuffer& held) const {
  const Bytes lies = buffer(part.buffer).contiguous(part.offset, part.count);
  if (lies.data() != nullptr || part.count == 0) return lies;
  held = PooledBuffer(pool_, static_cast<size_t>(part.count) * scratch_.element_size());
  buffer(part.buffer).copy_to(part.offset, part.count, held.bytes().data());
  return held.bytes();
}

// Operands are in the order of the step's sources, which fixes the bits of the result. Own values
// that lie in pieces are copied.
void PlainArithmetic::find_sources(int step, int64_t segment, std::span<const ConstBytes> arrived) {
  const CompiledStep& compiled = op_.schedule->steps[step];
  gathered_.clear();
  sources_.resize(compiled.step.sources.size());
  for (size_t slot = 0; slot < arrived.size(); ++slot)
    sources_[compiled.source_of_in[slot]] = arrived[slot].data();
  for (size_t s = 0; s < sources_.size(); ++s) {
    if (compiled.step.sources[s].peer >= 0) continue;
    PooledBuffer held;
    sources_[s] = contiguous(slice(step, compiled.step.sources[s].range, segment), held).data();
    if (held) gathered_.push_back(std::move(held));
  }
}

void PlainArithmetic::add_up(int step, std::byte* to, int64_t count) const {
  const int64_t divisor = description(step).finish ? size_ : 1;
  ringdist::reduce(op_.request.dtype, op_.request.reduce_op, to, sources_,
                   static_cast<size_t>(count), divisor);
}

Error PlainArithmetic::reduce(int step, int64_t segment, std::span<const ConstBytes> arrived,
                              PooledBuffer&) {
  const Range part = range(step, segment);
  if (part.count == 0) return {};
  find_sources(step, segment, arrived);
  const Bytes to = buffer(part.buffer).contiguous(part.offset, part.count);
  if (to.data() != nullptr) {
    add_up(step, to.data(), part.count);
    return {};
  }
  const PooledBuffer sum(pool_, message_bytes(step, segment));
  add_up(step, sum.bytes().data(), part.count);
  buffer(part.buffer).copy_from(part.offset, part.count, sum.bytes().data());
  return {};
}

// Sums one block at a time, so that the nearest cache still holds it when it is stored again.
void PlainArithmetic::reduce_twice(int step, int64_t segment, std::span<const ConstBytes> arrived,
                                   Bytes twin) {
  const Range part = range(step, segment);
  const Bytes to = buffer(part.buffer).contiguous(part.offset, part.count);
  check(to.size() == twin.size() && to.data() != nullptr, "a twin of what lies in pieces");
  find_sources(step, segment, arrived);
  const size_t block = kTwinBytes / scratch_.element_size() * scratch_.element_size();
  for (size_t begin = 0; begin < to.size(); begin += block) {
    const size_t bytes = std::min(block, to.size() - begin);
    add_up(step, to.data() + begin, static_cast<int64_t>(bytes / scratch_.element_size()));
    std::memcpy(twin.data() + begin, to.data() + begin, bytes);
    for (const std::byte*& source : sources_) source += bytes;
  }
}

Error PlainArithmetic::copy(int step, int64_t segment, PooledBuffer&) {
  const Range to = range(step, segment);
  const Range from = slice(step, description(step).sources[0].range, segment);
  // Copies piece by piece, because both ranges may lie in several spans.
  int64_t at = 0;
  buffer(to.buffer).for_each(to.offset, to.count, [&](Bytes piece) {
    const auto count = static_cast<int64_t>(piece.size() / scratch_.element_size());
    const Bytes source = buffer(from.buffer).contiguous(from.offset + at, count);
    // in-place allgather: the part is already where it belongs
    if (source.data() == nullptr)
      buffer(from.buffer).copy_to(from.offset + at, count, piece.data());
    else if (source.data() != piece.data())
      ringdist::copy(piece.data(), source.data(), piece.size(), stores_);
    at += count;
  });
  return {};
}

}  // namespace

Pooled<Arithmetic> plain_arithmetic(const Op& op, int size, StoreMode stores,
                                    const ArithmeticMemory& memory) {
  return make_pooled<PlainArithmetic>(memory.objects, op, size, stores, memory);
}

}  // namespace ringdist
