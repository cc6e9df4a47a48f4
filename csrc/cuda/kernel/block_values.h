// The elements of one block in the registers of a warp. Element i is part i / 32 of lane i % 32.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

// Values of a block, with kPartCount elements in each lane.
template <Warp W, int kPartCount>
struct Values {
  static constexpr int kParts = kPartCount;

  typename W::template Lanes<float> part[kParts];
};

// Calls body(part, lane, element) for each of `count` elements.
template <int kParts, Warp W, typename Body>
RINGDIST_DEVICE void each_element(W& warp, int count, const Body& body) {
  for (int part = 0; part < kParts; ++part)
    warp.each([&](int lane) {
      const int i = part * kWarp + lane;
      if (i < count) body(part, lane, i);
    });
}

// Sets all elements to `value`.
template <Warp W, int kParts>
RINGDIST_DEVICE void fill(W& warp, Values<W, kParts>& x, float value) {
  for (auto& part : x.part) warp.each([&](int lane) { part[lane] = value; });
}

inline constexpr uint32_t kSignBit = 0x80000000;
inline constexpr uint32_t kInfinity = 0x7f800000;

constexpr uint32_t float_bits(float x) { return std::bit_cast<uint32_t>(x); }
constexpr uint32_t magnitude_bits(float x) { return float_bits(x) & ~kSignBit; }
constexpr bool finite(float x) { return magnitude_bits(x) < kInfinity; }

// Returns the bits of the largest magnitude. The result is at least kInfinity if a value is not
// finite. Bits without the sign have the order of the values, with NaNs above infinity.
template <Warp W, int kParts>
RINGDIST_DEVICE uint32_t largest_magnitude(W& warp, const Values<W, kParts>& x) {
  typename W::template Lanes<uint32_t> largest;
  warp.each([&](int lane) {
    largest[lane] = 0;
    for (const auto& part : x.part)
      if (magnitude_bits(part[lane]) > largest[lane]) largest[lane] = magnitude_bits(part[lane]);
  });
  return warp.maximum(largest);
}

RINGDIST_DEVICE bool is_odd(const uint8_t* at) {
  return reinterpret_cast<uintptr_t>(at) % sizeof(uint16_t) != 0;
}
// Store and load 16 bits at any address, little endian. Odd addresses are rare, so others have a
// fast path.
RINGDIST_DEVICE void store16(uint16_t value, uint8_t* out) {
  if (is_odd(out)) {
    out[0] = static_cast<uint8_t>(value);
    out[1] = static_cast<uint8_t>(value >> 8);
  } else {
    *reinterpret_cast<uint16_t*>(out) = value;
  }
}
RINGDIST_DEVICE uint16_t load16(const uint8_t* in) {
  if (is_odd(in)) return static_cast<uint16_t>(in[0] | in[1] << 8);
  return *reinterpret_cast<const uint16_t*>(in);
}

// Stores the 16-bit field in front of a block. All lanes pass the same field.
template <Warp W>
RINGDIST_DEVICE void store_field(W& warp, uint16_t field, uint8_t* out) {
  warp.each([&](int lane) {
    if (lane < static_cast<int>(sizeof field))
      out[lane] = static_cast<uint8_t>(field >> (8 * lane));
  });
}

}  // namespace ringdist::gpu
