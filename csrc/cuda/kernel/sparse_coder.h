// Blocks of the codecs topk and randomk between a warp's registers and their bytes: what they have
// in common. The twins of codec/topk.cc and codec/randomk.cc, byte for byte. Coders
// (cuda/kernel/codec_bodies.h).
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/kernel/block_values.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

struct SparseBlock {
  static constexpr int kCount = 1024;
  static constexpr int kParts = kCount / kWarp;
  static constexpr int kEncodes = 1;
  static constexpr int kDecodes = 1;
  static constexpr bool kTogether = false;
  static constexpr bool kSparse = true;
  static constexpr bool kEncodesWide = false;
  static constexpr bool kDecodesWide = false;

  int k = 1;  // of kCount

  template <Warp W>
  using Fetched = const uint8_t*;  // they are read where they are

  template <Warp W>
  RINGDIST_DEVICE const uint8_t* fetch(W&, const uint8_t* in, int) const {
    return in;
  }

  // So many of a block of `count` elements are sent.
  constexpr int share(int count) const { return (k * count + kCount - 1) / kCount; }

  // Element `at` of a part of which the lanes in `chosen` are: its place among all that are sent,
  // of which `before` are in parts before.
  RINGDIST_DEVICE static int place(uint32_t chosen, int lane, int before) {
    return before + std::popcount(chosen & lanes_before(lane));
  }
  RINGDIST_DEVICE static bool is_in(uint32_t lanes, int lane) { return (lanes >> lane & 1) != 0; }

  // What an element that was not sent is, and one that was.
  RINGDIST_DEVICE static float absent(bool adding) { return adding ? -0.0f : 0.0f; }
  RINGDIST_DEVICE static float present(float value, bool adding) {
    return adding ? value : 0.0f + value;
  }
};

}  // namespace ringdist::gpu
