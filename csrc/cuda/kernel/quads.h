// 1024 elements of whole blocks in the registers of a warp, as quads of four consecutive elements.
// A block belongs to `kLanes` lanes, and blocks are in the order of lanes. Lane m of a block has
// its quads m, m + kLanes, ...
#pragma once

#include <cstdint>

#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

inline constexpr int kQuads = 8;  // quads of a lane
inline constexpr int kWideCount = kQuads * 4 * kWarp;

// Units that a lane reads and writes at once.
struct alignas(16) Quad {
  float at[4];
};
struct alignas(8) Octet {
  uint8_t at[8];
};

template <Warp W, int kLanes>
struct Quads {
  typename W::template Lanes<Quad> quad[kQuads];
};

// Calls body(quad, lane, element) with the first element of each quad.
template <int kLanes, Warp W, typename Body>
RINGDIST_DEVICE void each_quad(W& warp, const Body& body) {
  RINGDIST_UNROLL
  for (int q = 0; q < kQuads; ++q)
    warp.each([&](int lane) {
      const int quad = lane / kLanes * (kQuads * kLanes) + q * kLanes + lane % kLanes;
      body(q, lane, 4 * quad);
    });
}

// Reads the elements of all quads. `in` is aligned as a Quad is.
template <Warp W, int kLanes>
RINGDIST_DEVICE void read_quads(W& warp, const float* in, Quads<W, kLanes>& x) {
  each_quad<kLanes>(warp, [&](int q, int lane, int i) {
    x.quad[q][lane] = *reinterpret_cast<const Quad*>(in + i);
  });
}

// Returns to each lane the total of its block's running sums, of which each lane has four. Sums are
// added pairwise, in the order in which the CPU's codecs add sixteen or thirty-two of them. Another
// order would round differently.
template <int kLanes, Warp W>
RINGDIST_DEVICE auto total_of_quads(W& warp, typename W::template Lanes<float> (&sums)[4]) {
  RINGDIST_UNROLL
  for (int flip = kLanes / 2; flip > 0; flip /= 2)
    for (auto& sum : sums) {
      const auto other = warp.shuffled(sum, flip);
      warp.each([&](int lane) { sum[lane] += other[lane]; });
    }
  typename W::template Lanes<float> out;
  warp.each([&](int lane) {
    out[lane] = (sums[0][lane] + sums[2][lane]) + (sums[1][lane] + sums[3][lane]);
  });
  return out;
}

RINGDIST_DEVICE void store_quad(const Quad& x, float* out) {
#ifdef __CUDA_ARCH__
  // The compiler may split an assignment into four stores.
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(out), "f"(x.at[0]), "f"(x.at[1]),
               "f"(x.at[2]), "f"(x.at[3])
               : "memory");
#else
  *reinterpret_cast<Quad*>(out) = x;
#endif
}

// Does the inverse of read_quads(), with the same alignment.
template <Warp W, int kLanes>
RINGDIST_DEVICE void write_quads(W& warp, const Quads<W, kLanes>& x, float* out) {
  each_quad<kLanes>(warp, [&](int q, int lane, int i) { store_quad(x.quad[q][lane], out + i); });
}

// Writes the bytes that lanes have put into shared memory. `out` is aligned as an Octet is.
template <int kBytes, Warp W>
RINGDIST_DEVICE void write_staged(W& warp, uint8_t* out) {
  static_assert(kBytes % sizeof(Octet) == 0);
  constexpr int kOctets = kBytes / static_cast<int>(sizeof(Octet));
  warp.sync();
  RINGDIST_UNROLL
  for (int first = 0; first < kOctets; first += kWarp)
    warp.each([&](int lane) {
      const int i = first + lane;
      if (i < kOctets)
        reinterpret_cast<Octet*>(out)[i] = static_cast<const Octet*>(warp.scratch())[i];
    });
  warp.sync();  // before the next batch
}

}  // namespace ringdist::gpu
