#include "codec/rotated_onebit.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "codec/rotated_codec.h"
#include "kernel/finite_bfloat.h"
#include "kernel/half.h"
#include "kernel/rotated_sign.h"

namespace ringdist {
namespace {

constexpr size_t kFieldBytes = sizeof(uint16_t);
constexpr size_t kBlockBytes = kFieldBytes + kSignBlock / 8;

// Blocks whose largest magnitude is outside of 2^-60 .. 2^60 may be special to onebit or to the
// rotation: they go the general way. Within, the mean of the rotated values is above 2^-76.
constexpr uint32_t kLeast = (127 - 60) << 23;
constexpr uint32_t kMost = (127 + 60) << 23;

// Scales that no finite block above has. Zero among them, whose sums have signs of their own.
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
  // False, and nothing but `out` written, for a block that goes the general way.
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

CodecPtr rotate_onebit(CodecPtr onebit) {
  check(rotated_sign_loops() != nullptr, "no loops for rotated signs on this processor");
  return std::make_shared<RotatedOnebit>(std::move(onebit));
}

}  // namespace ringdist
