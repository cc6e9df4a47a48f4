// Rotated codecs: signs, Hadamard transform, then the codec within. rotated.spec.md has the
// details.
#include "codec/rotated.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "codec/block_codec.h"
#include "kernel/cast.h"
#include "kernel/counter.h"
#include "kernel/hadamard.h"
#include "kernel/select.h"

namespace ringdist {
namespace {

constexpr size_t kChunk = Codec::kMaxBlock;  // whole blocks of any codec
constexpr size_t kScalarBlock = 256;         // rotated together for codecs without blocks
constexpr uint32_t kInfinity = 0x7f800000;
// From here on (2^100) a block is sent scaled down, lest the sums of the transform overflow.
constexpr uint32_t kHuge = (127 + 100) << 23;
constexpr float kShrink = 0x1p-28f;

using Chunk = std::array<float, kChunk>;

// Both ways scale by a power of two, which does not round; together by 1 / count.
float forward_scale(size_t count) { return std::ldexp(1.0f, -(std::countr_zero(count) / 2)); }
float inverse_scale(size_t count) { return std::ldexp(1.0f, -((std::countr_zero(count) + 1) / 2)); }

using Signs = std::array<std::byte, kChunk / 8>;

Signs draw_signs(uint64_t key) {
  Signs out;
  for (size_t i = 0; i < kChunk / 64; ++i) {
    const uint64_t word = random_at(key, i);
    std::memcpy(&out[8 * i], &word, sizeof word);
  }
  return out;
}

// Calls fn(first element, count, first byte of signs) for all that is rotated together: whole
// blocks, and powers of two of a tail.
template <typename Fn>
void for_each_run(size_t count, size_t block, const Fn& fn) {
  for (size_t at = 0; at < count;) {
    const size_t run = std::min(block, std::bit_floor(count - at));
    fn(at, run, at / 8);
    at += run;
  }
}

class RotatedCodec final : public Codec {
 public:
  explicit RotatedCodec(CodecPtr inner)
      : inner_(std::move(inner)),
        name_(std::string(inner_->name()) + "+h"),
        block_(inner_->block() > 1 ? static_cast<size_t>(inner_->block()) : kScalarBlock) {}

  std::string_view name() const override { return name_; }
  uint8_t wire_id() const override { return inner_->wire_id(); }
  uint16_t wire_parameters() const override { return inner_->wire_parameters() | kRotationBit; }
  bool contraction() const override { return inner_->contraction(); }
  bool feedback_by_default() const override { return inner_->feedback_by_default(); }
  int64_t block() const override { return static_cast<int64_t>(block_); }
  double bits() const override { return inner_->bits(); }
  bool supports(DType dtype) const override { return inner_->supports(dtype); }
  size_t max_bytes(int64_t count, DType dtype) const override {
    return inner_->max_bytes(count, dtype);
  }

  size_t encode(std::span<const float> in, DType dtype, std::span<float> residual, CodingSeed seed,
                Bytes out) const override {
    size_t used = 0;
    for (size_t at = 0; at < in.size(); at += kChunk) {
      const size_t n = std::min(kChunk, in.size() - at);
      const auto lost = residual.empty() ? residual : residual.subspan(at, n);
      used += encode_chunk(in.subspan(at, n), dtype, lost, chunk_seed(seed, at), out.subspan(used));
    }
    return used;
  }

  Result<size_t> decode(ConstBytes in, DType dtype, CodingSeed seed, bool accumulate,
                        std::span<float> out) const override {
    size_t used = 0;
    Chunk values;
    for (size_t at = 0; at < out.size(); at += kChunk) {
      const std::span<float> to = out.subspan(at, std::min(kChunk, out.size() - at));
      const std::span<float> decoded = std::span(values).first(to.size());
      const CodingSeed own = chunk_seed(seed, at);
      const Result<size_t> size =
          decode_chunk(in.subspan(used), dtype, own, draw_signs(own.shared), decoded);
      if (!size.ok()) return size;
      used += size.value();
      for (size_t i = 0; i < to.size(); ++i) to[i] = accumulate ? to[i] + values[i] : values[i];
    }
    return used;
  }

 private:
  // The chunks are numbered here, the blocks within one by the codec within.
  static CodingSeed chunk_seed(CodingSeed seed, size_t at) {
    return {random_at(seed.shared, at / kChunk), random_at(seed.own, at / kChunk)};
  }

  size_t encode_chunk(std::span<const float> in, DType dtype, std::span<float> residual,
                      CodingSeed seed, Bytes out) const {
    Chunk sum;
    Chunk rotated;
    const std::span<float> values = std::span(rotated).first(in.size());
    for_each_block(in.size(), [&](size_t at, size_t n) {
      const float* lost = residual.empty() ? nullptr : &residual[at];
      prepare(sum_block(&in[at], lost, n, &sum[at]), std::span(sum).subspan(at, n), &values[at]);
    });
    const Signs signs = draw_signs(seed.shared);
    for_each_run(in.size(), block_, [&](size_t at, size_t n, size_t byte) {
      rotation_loops().forward(&values[at], &signs[byte], forward_scale(n), n, &values[at]);
    });
    const size_t used = inner_->encode(values, dtype, {}, seed, out);
    if (residual.empty()) return used;
    Chunk decoded;
    const std::span<float> back = std::span(decoded).first(in.size());
    check(decode_chunk(ConstBytes(out).first(used), dtype, seed, signs, back).ok(),
          "a codec cannot decode what it encoded");
    for_each_block(in.size(), [&](size_t at, size_t n) {
      if (!is_finite(values[at])) return;
      for (size_t i = at; i < at + n; ++i) residual[i] = sum[i] - decoded[i];
    });
    return used;
  }

  Result<size_t> decode_chunk(ConstBytes in, DType dtype, CodingSeed seed, const Signs& signs,
                              std::span<float> out) const {
    const Result<size_t> used = inner_->decode(in, dtype, seed, false, out);
    if (!used.ok()) return used;
    for_each_run(out.size(), block_, [&](size_t at, size_t n, size_t byte) {
      rotation_loops().back(&out[at], &signs[byte], inverse_scale(n), n);
    });
    return used;
  }

  template <typename Fn>
  void for_each_block(size_t count, const Fn& fn) const {
    for (size_t at = 0; at < count; at += block_) fn(at, std::min(block_, count - at));
  }

  // The values of a block as they are transformed: poisoned whole, or scaled down if huge. Scaling
  // down keeps a contraction one: |x - Q(x)| < |x| holds if and only if 2 <x, Q> > |Q|^2, which for
  // a longer x still does.
  static void prepare(uint32_t largest, std::span<const float> sum, float* out) {
    if (largest >= kInfinity) {
      std::fill_n(out, sum.size(), std::numeric_limits<float>::quiet_NaN());
    } else {
      const float factor = largest >= kHuge ? kShrink : 1.0f;
      for (size_t i = 0; i < sum.size(); ++i) out[i] = sum[i] * factor;
    }
  }

  CodecPtr inner_;
  std::string name_;
  size_t block_;
};

}  // namespace

Result<CodecPtr> rotate(CodecPtr inner) {
  const std::string name = "codec '" + std::string(inner->name()) + "'";
  if (inner->exact())
    return Error(ErrorKind::kInvalidArgument,
                 name + " is exact, which '+h' would end; '+h' goes with lossy codecs");
  if ((inner->wire_parameters() & kRotationBit) != 0)
    return Error(ErrorKind::kInvalidArgument, name + " has '+h' already; once is enough");
  return CodecPtr(std::make_shared<RotatedCodec>(std::move(inner)));
}

}  // namespace ringdist
