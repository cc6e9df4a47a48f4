// Codec `onebit`: signs, and the mean magnitude of each block (F. Seide et al., "1-bit stochastic
// gradient descent", 2014; one scale for both signs). onebit.spec.md has the bytes.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "codec/block_codec.h"
#include "codec/codec.h"
#include "kernel/cast.h"
#include "kernel/half.h"
#include "kernel/sign.h"

namespace ringdist {
namespace {

constexpr uint8_t kWireId = 7;
constexpr size_t kScaleBytes = sizeof(uint16_t);
// Sign bit of the scale field. It marks a block of which only one element is sent, as a power of
// two. The smallest bf16 is too coarse a scale for a block that is almost all zeros and subnormals.
constexpr uint16_t kSingle = 0x8000;

using Sum = std::array<float, kSignBlock>;

// Decode the field of a single element: the magnitude, and the index in the block.
float single_value(uint16_t field) { return std::ldexp(1.0f, (field >> 8 & 0x7f) - 149); }
size_t single_index(uint16_t field) { return field & 0xff; }

// Returns the field for the largest element, rounded down to a power of two. Its loss is then less
// than the element, as a contraction requires.
uint16_t single(const Sum& sum, size_t count) {
  const auto smaller = [](float a, float b) { return std::abs(a) < std::abs(b); };
  const auto at =
      std::max_element(sum.begin(), sum.begin() + static_cast<ptrdiff_t>(count), smaller);
  const int exponent = std::ilogb(*at) + 149;
  return static_cast<uint16_t>(kSingle | exponent << 8 | (at - sum.begin()));
}

// Returns the mean for a sum of magnitudes that is not finite. The mean is NaN unless only the sum
// overflows.
float large_mean(const Sum& sum, size_t count) {
  double total = 0;
  for (size_t i = 0; i < count; ++i) total += std::abs(sum[i]);
  if (!(total <= static_cast<double>(count) * std::numeric_limits<float>::max()))
    return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(total / static_cast<double>(count));
}

// Returns the scale field for a block with this sum of magnitudes (onebit.spec.md). The mean is
// used, because it is the scale with the least squared error.
uint16_t scale_field(float total, const Sum& sum, size_t count) {
  if (total == 0) return 0;
  const float mean = is_finite(total) ? total / static_cast<float>(count) : large_mean(sum, count);
  if (!is_finite(mean)) return kBFloatNaN;
  if (mean < std::numeric_limits<float>::min()) return single(sum, count);
  return finite_bfloat(mean);
}

class OnebitCodec final : public BlockCodec {
 public:
  OnebitCodec() : BlockCodec("onebit", kWireId, 0, kSignBlock) {}
  bool contraction() const override { return true; }
  bool feedback_by_default() const override { return true; }

 protected:
  size_t block_bytes(int64_t count) const override {
    return kScaleBytes + (static_cast<size_t>(count) + 7) / 8;
  }

  void encode_blocks(std::span<const float> in, ResidualSpan residual, CodecSeed,
                     Bytes out) const override {
    Sum sum;
    std::byte* to = out.data();
    for (size_t at = 0; at < in.size(); at += kSignBlock) {
      const size_t n = std::min(kSignBlock, in.size() - at);
      const ResidualSpan chunk_residual = residual.subspan(at, n);
      prefetch(in, at + 2 * kSignBlock, kSignBlock);
      prefetch({residual.from, residual.count}, at + 2 * kSignBlock, kSignBlock);
      const float total =
          sign_loops().take(in.data() + at, chunk_residual.from, n, sum.data(), to + kScaleBytes);
      const uint16_t field = scale_field(total, sum, n);
      std::memcpy(to, &field, sizeof field);
      if (field == kBFloatNaN) {
        // The sign bits of NaNs depend on the processor, so they are cleared.
        std::memset(to + kScaleBytes, 0, block_bytes(static_cast<int64_t>(n)) - kScaleBytes);
        chunk_residual.keep();
      } else if (!chunk_residual.empty()) {
        lose(field, sum, n, chunk_residual.to);
      }
      to += block_bytes(static_cast<int64_t>(n));
    }
  }

  Error decode_blocks(ConstBytes in, CodecSeed, bool accumulate,
                      std::span<float> out) const override {
    const std::byte* from = in.data();
    for (size_t at = 0; at < out.size(); at += kSignBlock) {
      const std::span<float> to = out.subspan(at, std::min(kSignBlock, out.size() - at));
      uint16_t field;
      std::memcpy(&field, from, sizeof field);
      if ((field & kSingle) == 0)
        sign_loops().decode(from + kScaleBytes, bfloat_to_float(field), accumulate, to.data(),
                            to.size());
      else if (Error error = decode_single(field, from + kScaleBytes, accumulate, to))
        return error;
      from += block_bytes(static_cast<int64_t>(to.size()));
    }
    return {};
  }

 private:
  // Writes the loss of a finite block as the new residual.
  static void lose(uint16_t field, const Sum& sum, size_t count, float* lost) {
    if ((field & kSingle) == 0)
      return sign_loops().lose(sum.data(), bfloat_to_float(field), count, lost);
    std::copy_n(sum.begin(), count, lost);
    float& at = lost[single_index(field)];
    at -= std::copysign(single_value(field), at);
  }

  // Decodes a block of which one element was sent. The others decode to 0.
  static Error decode_single(uint16_t field, const std::byte* signs, bool accumulate,
                             std::span<float> out) {
    const size_t index = single_index(field);
    if (index >= out.size())
      return Error(ErrorKind::kProtocol, "codec onebit: element " + std::to_string(index) +
                                             " in a block of " + std::to_string(out.size()));
    if (!accumulate) std::fill(out.begin(), out.end(), 0.0f);
    const bool negative = (signs[index / 8] >> (index % 8) & std::byte{1}) != std::byte{0};
    out[index] += negative ? -single_value(field) : single_value(field);
    return {};
  }
};

Result<CodecPtr> make(std::string_view parameter) {
  if (!parameter.empty()) return bad_parameter("onebit", parameter, "");
  return CodecPtr(std::make_shared<OnebitCodec>());
}

constexpr std::array<std::string_view, 1> kExamples{"onebit"};

}  // namespace

CodecRow onebit_row() {
  // Without a rotation, training diverges when sums are encoded again.
  return {"onebit", kWireId, "signs and one magnitude per 256", "", kExamples, make, "onebit+h"};
}

}  // namespace ringdist
