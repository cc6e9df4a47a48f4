// Entry of codec `topk`: one element as 4 bytes (codec/topk.spec.md). Loops on a device use it,
// too.
#pragma once

#include <bit>
#include <cstdint>

#include "kernel/half.h"

namespace ringdist {

// Index and value of one element on the wire, in this memory layout. Any bytes are safe: index()
// may be beyond the block, which the decoder checks.
struct TopkPair {
  // The index, with the bit kTiny if the value counts units of 2^-149 with a sign bit.
  uint16_t field;
  uint16_t value;

  // Flag for values that are so small that bf16 could round them to zero.
  static constexpr uint16_t kTiny = 0x8000;
  static constexpr uint32_t kLargestTiny = 0x7fff;
  static constexpr uint16_t kPoisonField = 0xffff;

  // Returns the entry of a finite value. `index` is at most 1023.
  static constexpr TopkPair of(uint16_t index, float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t magnitude = bits & 0x7fffffff;
    // 0x8000 is half of the smallest bf16.
    if (magnitude == 0 || magnitude > kLargestTiny + 1) return {index, finite_bfloat(x)};
    const uint32_t units = magnitude < kLargestTiny ? magnitude : kLargestTiny;
    return {static_cast<uint16_t>(index | kTiny),
            static_cast<uint16_t>((bits >> 16 & 0x8000) | units)};
  }
  static constexpr TopkPair poison() { return {kPoisonField, kBFloatNaN}; }

  constexpr bool is_poison() const { return field == kPoisonField; }
  constexpr int index() const { return field & static_cast<uint16_t>(~kTiny); }
  // Returns the value as a decoder adds it. Units of 2^-149 are the bits of a subnormal.
  constexpr float decoded() const {
    if ((field & kTiny) == 0) return bfloat_to_float(value);
    const uint32_t sign = static_cast<uint32_t>(value & 0x8000) << 16;
    return std::bit_cast<float>(sign | (value & kLargestTiny));
  }
};

}  // namespace ringdist
