// Codes as bits, first bit lowest: writes those of a run after those of the runs before.
#pragma once

#include <cstdint>

#include "cuda/kernel/lossless_code.h"
#include "cuda/kernel/staged_bytes.h"
#include "cuda/warp/device.h"
#include "cuda/warp/scan.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

// The codes of a chunk: each in its lowest bits, first bit lowest, and its length above them.
struct LosslessCodes {
  static constexpr int kMask = (1 << kMaxCodeBits) - 1;

  uint16_t code[kSymbols];

  template <Warp W>
  RINGDIST_DEVICE void set(W& warp, const BySymbol<W>& lengths) {
    each_code(
        warp, lengths,
        [&](int symbol, int length, uint32_t next, int) {
          const uint32_t bits = reversed(next) >> (32 - length);
          code[symbol] =
              static_cast<uint16_t>(bits | static_cast<uint32_t>(length) << kMaxCodeBits);
        },
        [](int, uint32_t, int) {});
    warp.sync();
  }
};

// What those of a run are put together in, in the warp's memory: 7 bits may be left of the run
// before.
struct LosslessWords {
  uint32_t word[LosslessChunk::kRun * kMaxCodeBits / 32 + 1];
};

// A lane has the codes of eight symbols that follow each other.
template <Warp W>
class LosslessBits {
 public:
  RINGDIST_DEVICE LosslessBits(LosslessWords& words, uint8_t* out) : words_(words), out_(out) {}

  // Returns the bits that they take. No lane changes `symbols` until the warp's next sync().
  RINGDIST_DEVICE uint32_t put(W& warp, const LosslessCodes& codes, const uint8_t* symbols,
                               int count) {
    Lanes<uint64_t> low, high;
    Lanes<uint32_t> low_bits, bits;
    warp.each([&](int lane) {
      for (int i = lane; i < kWords; i += kWarp) words_.word[i] = i == 0 ? carry_ : 0;
      low[lane] = high[lane] = 0;
      const int first = kHalf * 2 * lane;
      low_bits[lane] = join(codes, symbols + first, count - first, low[lane]);
      const uint32_t more = join(codes, symbols + first + kHalf, count - first - kHalf, high[lane]);
      bits[lane] = low_bits[lane] + more;
    });
    warp.sync();
    const auto before = sums_before(warp, bits);
    warp.each([&](int lane) {
      const uint32_t at = held_ + before[lane];
      add(warp, at, low[lane]);
      add(warp, at + low_bits[lane], high[lane]);
    });
    warp.sync();
    const uint32_t all = warp.sum(bits);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(words_.word);
    const uint32_t whole = (held_ + all) / 8;
    write_bytes(warp, bytes, static_cast<int>(whole), out_);
    carry_ = bytes[whole];
    held_ = (held_ + all) % 8;
    out_ += whole;
    warp.sync();
    return all;
  }

  // Zeros up to a whole byte.
  RINGDIST_DEVICE void finish(W& warp) {
    warp.each([&](int lane) {
      if (lane == 0 && held_ != 0) *out_ = static_cast<uint8_t>(carry_);
    });
  }

 private:
  template <typename T>
  using Lanes = typename W::template Lanes<T>;
  static constexpr int kWords = sizeof(LosslessWords) / sizeof(uint32_t);
  static constexpr int kHalf =
      LosslessChunk::kRun / kWarp / 2;  // symbols: their codes fit into 64 bits
  static_assert(kHalf * kMaxCodeBits <= 64 - 8);

  RINGDIST_DEVICE static uint32_t join(const LosslessCodes& codes, const uint8_t* symbols,
                                       int count, uint64_t& bits) {
    uint32_t held = 0;
    RINGDIST_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      if (i >= count) continue;
      const uint32_t code = codes.code[symbols[i]];
      bits |= uint64_t{code & LosslessCodes::kMask} << held;
      held += code >> kMaxCodeBits;
    }
    return held;
  }

  // Bits of lanes meet in words, but not each other.
  RINGDIST_DEVICE void add(const W& warp, uint32_t at, uint64_t bits) const {
    uint32_t* word = words_.word + at / 32;
    const uint32_t shift = at % 32;
    const uint64_t rest = bits >> (32 - shift);
    const auto first = static_cast<uint32_t>(bits << shift);
    const auto second = static_cast<uint32_t>(rest);
    const auto third = static_cast<uint32_t>(rest >> 32);
    if (first != 0) warp.add(word, first);
    if (second != 0) warp.add(word + 1, second);
    if (third != 0) warp.add(word + 2, third);
  }

  LosslessWords& words_;
  uint8_t* out_;
  uint32_t carry_ = 0;  // bits that do not fill a byte yet
  uint32_t held_ = 0;   // so many, below 8
};

}  // namespace ringdist::gpu
