// The bits of one run of codes, read by one lane.
#pragma once

#include <cstdint>

#include "cuda/warp/device.h"

namespace ringdist::gpu {

class LosslessReader {
 public:
  LosslessReader() = default;
  // From bit `bit` of `codes` on, in front of which 3 bytes may be read; from `end` on all bits
  // are 0.
  RINGDIST_DEVICE LosslessReader(const uint8_t* codes, uint32_t bit, const uint8_t* end)
      : end_(end) {
    const uint8_t* const byte = codes + bit / 8;
    const auto off = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(byte) % sizeof(uint32_t));
    next_ = byte - off;
    fill(1);
    drop(8 * off + bit % 8);
  }

  // There are at least so many bits now, up to 32.
  RINGDIST_DEVICE void fill(uint32_t bits) {
    if (held_ >= bits) return;
    bits_ |= uint64_t{word()} << held_;
    held_ += 32;
    next_ += sizeof(uint32_t);
  }
  // The next one lowest.
  RINGDIST_DEVICE uint32_t peek() const { return static_cast<uint32_t>(bits_); }
  RINGDIST_DEVICE void drop(uint32_t bits) {
    bits_ >>= bits;
    held_ -= bits;
  }

 private:
  RINGDIST_DEVICE uint32_t word() const {
    if (end_ - next_ >= static_cast<ptrdiff_t>(sizeof(uint32_t)))
      return *reinterpret_cast<const uint32_t*>(next_);
    uint32_t out = 0;
    for (int i = 0; i < end_ - next_; ++i) out |= uint32_t{next_[i]} << (8 * i);
    return out;
  }

  const uint8_t* next_ = nullptr;  // a multiple of 4
  const uint8_t* end_ = nullptr;
  uint64_t bits_ = 0;
  uint32_t held_ = 0;
};

}  // namespace ringdist::gpu
