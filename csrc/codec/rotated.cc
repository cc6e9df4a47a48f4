// Rotated codecs: sign flips, then a Hadamard transform, then the inner codec. rotated.spec.md has
// the details.

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
#include "kernel/counter_rng.h"
#include "kernel/hadamard.h"
#include "kernel/half.h"
#include "kernel/rotated_sign.h"
#include "kernel/select.h"

namespace ringdist {

CodecRow onebit_row();
namespace {

constexpr size_t kScalarBlock = 256;  // rotated together, for codecs without blocks
constexpr uint32_t kInfinity = 0x7f800000;

// Both directions scale by a power of two, which does not round. The product of both scales is 1 /
// count.
float forward_scale(size_t count) { return std::ldexp(1.0f, -(std::countr_zero(count) / 2)); }
float inverse_scale(size_t count) { return std::ldexp(1.0f, -((std::countr_zero(count) + 1) / 2)); }

using Signs = std::array<std::byte, Codec::kMaxBlock / 8>;

// Returns the sign bits of a chunk, 64 of each random number. Both ends draw them from the shared
// seed, so they are not sent.
Signs draw_signs(uint64_t key) {
  Signs out;
  for (size_t i = 0; i < out.size() / 8; ++i) {
    const uint64_t word = random_at(key, i);
    std::memcpy(&out[8 * i], &word, sizeof word);
  }
  return out;
}

// Calls fn(first element, count, first byte of signs) for each run that is rotated together. Runs
// are whole blocks, then powers of two of the tail.
template <typename Fn>
void for_each_run(size_t count, size_t block, const Fn& fn) {
  for (size_t at = 0; at < count;) {
    const size_t run = std::min(block, std::bit_floor(count - at));
    fn(at, run, at / 8);
    at += run;
  }
}

// Calls fn(first element, count) for each block of the inner codec, the tail included as one.
template <typename Fn>
void for_each_block(size_t count, size_t block, const Fn& fn) {
  for (size_t at = 0; at < count; at += block) fn(at, std::min(block, count - at));
}

// Prepares a block for the transform: fills it with NaN if it is poisoned, or scales it down if it
// is huge. A contraction stays one under scaling down. |x - Q(x)| < |x| holds if and only if 2 <x,
// Q> > |Q|^2, and this still holds for a longer x.
void prepare(bool finite, float factor, std::span<const float> sum, float* out) {
  if (!finite) {
    std::fill_n(out, sum.size(), std::numeric_limits<float>::quiet_NaN());
  } else {
    for (size_t i = 0; i < sum.size(); ++i) out[i] = sum[i] * factor;
  }
}

// Returns the seed of a chunk. Chunks are numbered here; the inner codec numbers the blocks in a
// chunk.
CodecSeed chunk_seed(CodecSeed seed, size_t number) {
  return {random_at(seed.shared, number), random_at(seed.own, number)};
}

constexpr size_t kFieldBytes = sizeof(uint16_t);
constexpr size_t kBlockBytes = kFieldBytes + kSignBlock / 8;

// Range of largest magnitudes for the fast loops, 2^-60 .. 2^60. Other blocks may be special to
// `onebit` or to the rotation, so RotatedCodec handles them. Within the range, the mean of the
// rotated values is above 2^-76.
constexpr uint32_t kLeast = (127 - 60) << 23;
constexpr uint32_t kMost = (127 + 60) << 23;

// Range of scales for the fast loops. No finite block of the range above has a scale outside of it.
// Zero is excluded, because the sums of its zeros have signs of their own.
constexpr uint16_t kLeastField = (127 - 100) << 7;
constexpr uint16_t kMostField = (127 + 100) << 7;

class RotatedOnebit final : public RotatedCodec {
 public:
  explicit RotatedOnebit(CodecPtr onebit)
      : RotatedCodec(std::move(onebit)), loops_(*rotated_sign_loops()) {}

 protected:
  size_t encode_chunk(std::span<const float> in, DType dtype, ResidualSpan residual, CodecSeed seed,
                      const std::byte* signs, Bytes out) const override {
    size_t used = 0;
    for (size_t at = 0; at < in.size(); at += kSignBlock) {
      const size_t n = std::min(kSignBlock, in.size() - at);
      const ResidualSpan chunk_residual = residual.subspan(at, n);
      const bool done = n == kSignBlock &&
                        encode_block(&in[at], chunk_residual, signs + at / 8, out.subspan(used));
      used += done ? kBlockBytes
                   : RotatedCodec::encode_chunk(in.subspan(at, n), dtype, chunk_residual, seed,
                                                signs + at / 8, out.subspan(used));
    }
    return used;
  }

  Result<size_t> decode_chunk(ConstBytes in, DType dtype, CodecSeed seed, const std::byte* signs,
                              bool accumulate, std::span<float> out) const override {
    size_t used = 0;
    for (size_t at = 0; at < out.size(); at += kSignBlock) {
      const size_t n = std::min(kSignBlock, out.size() - at);
      const ConstBytes from = in.subspan(used);
      if (n == kSignBlock && decode_block(from, signs + at / 8, accumulate, &out[at])) {
        used += kBlockBytes;
        continue;
      }
      const Result<size_t> size = RotatedCodec::decode_chunk(from, dtype, seed, signs + at / 8,
                                                             accumulate, out.subspan(at, n));
      if (!size.ok()) return size;
      used += size.value();
    }
    return used;
  }

 private:
  // Returns false for a block that the fast loops cannot encode; then only `out` has been written.
  bool encode_block(const float* in, ResidualSpan residual, const std::byte* signs,
                    Bytes out) const {
    alignas(64) float sum[kSignBlock];
    std::byte* bits = out.data() + kFieldBytes;
    float total;
    const uint32_t largest = loops_.take(in, residual.from, signs, sum, bits, &total);
    if (largest < kLeast || largest >= kMost) return false;
    const uint16_t field = finite_bfloat(total / static_cast<float>(kSignBlock));
    std::memcpy(out.data(), &field, sizeof field);
    if (!residual.empty()) loops_.subtract(bits, signs, bfloat_to_float(field), sum, residual.to);
    return true;
  }

  bool decode_block(ConstBytes in, const std::byte* signs, bool accumulate, float* out) const {
    if (in.size() < kBlockBytes) return false;
    uint16_t field;
    std::memcpy(&field, in.data(), sizeof field);
    if (field < kLeastField || field >= kMostField) return false;
    const auto back = accumulate ? loops_.add : loops_.store;
    back(in.data() + kFieldBytes, signs, bfloat_to_float(field), out, out);
    return true;
  }

  const RotatedSignLoops& loops_;
};

}  // namespace

RotatedCodec::RotatedCodec(CodecPtr inner)
    : inner_(std::move(inner)),
      name_(std::string(inner_->name()) + "+h"),
      block_(inner_->block() > 1 ? static_cast<size_t>(inner_->block()) : kScalarBlock) {}

uint16_t RotatedCodec::wire_parameters() const { return inner_->wire_parameters() | kRotationBit; }

size_t RotatedCodec::encode(std::span<const float> in, DType dtype, ResidualSpan residual,
                            CodecSeed seed, Bytes out) const {
  size_t used = 0;
  for (size_t at = 0; at < in.size(); at += kChunk) {
    const size_t n = std::min(kChunk, in.size() - at);
    const ResidualSpan chunk_residual = residual.subspan(at, n);
    const CodecSeed own = chunk_seed(seed, at / kChunk);
    const Signs signs = draw_signs(own.shared);
    used += encode_chunk(in.subspan(at, n), dtype, chunk_residual, own, signs.data(),
                         out.subspan(used));
  }
  return used;
}

Result<size_t> RotatedCodec::decode(ConstBytes in, DType dtype, CodecSeed seed, bool accumulate,
                                    std::span<float> out) const {
  size_t used = 0;
  for (size_t at = 0; at < out.size(); at += kChunk) {
    const std::span<float> to = out.subspan(at, std::min(kChunk, out.size() - at));
    const CodecSeed own = chunk_seed(seed, at / kChunk);
    const Signs signs = draw_signs(own.shared);
    const Result<size_t> size =
        decode_chunk(in.subspan(used), dtype, own, signs.data(), accumulate, to);
    if (!size.ok()) return size;
    used += size.value();
  }
  return used;
}

size_t RotatedCodec::encode_chunk(std::span<const float> in, DType dtype, ResidualSpan residual,
                                  CodecSeed seed, const std::byte* signs, Bytes out) const {
  Chunk sum;
  Chunk rotated;
  const std::span<float> values = std::span(rotated).first(in.size());
  for_each_block(in.size(), block_, [&](size_t at, size_t n) {
    const ResidualSpan chunk_residual = residual.subspan(at, n);
    const uint32_t largest = sum_block(&in[at], chunk_residual.from, n, &sum[at]);
    prepare(largest < kInfinity, largest < kRotationHuge ? 1.0f : kRotationShrink,
            std::span(sum).subspan(at, n), &values[at]);
  });
  for_each_run(in.size(), block_, [&](size_t at, size_t n, size_t byte) {
    rotation_loops().forward(&values[at], &signs[byte], forward_scale(n), n, &values[at]);
  });
  const size_t used = inner_->encode(values, dtype, {}, seed, out);
  if (residual.empty()) return used;
  Chunk decoded;
  const std::span<float> back = std::span(decoded).first(in.size());
  // The loss is that of the bytes as a peer decodes them, so rounding in the transform counts, too.
  check(decode_values(ConstBytes(out).first(used), dtype, seed, signs, back).ok(),
        "a codec cannot decode what it encoded");
  for_each_block(in.size(), block_, [&](size_t at, size_t n) {
    if (!is_finite(values[at])) return residual.subspan(at, n).keep();
    for (size_t i = at; i < at + n; ++i) residual.to[i] = sum[i] - decoded[i];
  });
  return used;
}

Result<size_t> RotatedCodec::decode_chunk(ConstBytes in, DType dtype, CodecSeed seed,
                                          const std::byte* signs, bool accumulate,
                                          std::span<float> out) const {
  if (!accumulate) return decode_values(in, dtype, seed, signs, out);
  Chunk values;
  const Result<size_t> used =
      decode_values(in, dtype, seed, signs, std::span(values).first(out.size()));
  if (used.ok())
    for (size_t i = 0; i < out.size(); ++i) out[i] += values[i];
  return used;
}

Result<size_t> RotatedCodec::decode_values(ConstBytes in, DType dtype, CodecSeed seed,
                                           const std::byte* signs, std::span<float> out) const {
  const Result<size_t> used = inner_->decode(in, dtype, seed, false, out);
  if (!used.ok()) return used;
  for_each_run(out.size(), block_, [&](size_t at, size_t n, size_t byte) {
    rotation_loops().back(&out[at], &signs[byte], inverse_scale(n), n);
  });
  return used;
}

Result<CodecPtr> rotate(CodecPtr inner) {
  const std::string name = "codec '" + std::string(inner->name()) + "'";
  if (inner->exact())
    return Error(ErrorKind::kInvalidArgument,
                 name + " is exact, which '+h' would end; '+h' goes with lossy codecs");
  if ((inner->wire_parameters() & kRotationBit) != 0)
    return Error(ErrorKind::kInvalidArgument, name + " has '+h' already; once is enough");
  if (inner->wire_id() == onebit_row().wire_id && rotated_sign_loops() != nullptr)
    return rotate_onebit(std::move(inner));
  return CodecPtr(std::make_shared<RotatedCodec>(std::move(inner)));
}

CodecPtr rotate_onebit(CodecPtr onebit) {
  check(rotated_sign_loops() != nullptr, "no loops for rotated signs on this processor");
  return std::make_shared<RotatedOnebit>(std::move(onebit));
}

}  // namespace ringdist
