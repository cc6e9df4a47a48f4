// A warp as bodies of kernels see it: 32 lanes in step, each with its own variables, which hand
// values to each other. A body is a template over a type that models this; there are two:
// DeviceWarp (grid/device_warp.h) is the one that nvcc runs, and tests have one that takes the
// lanes in turn.
//
// What is the same in all lanes is an ordinary variable, and outside of each() a body branches on
// such only. What a lane has of its own is a Lanes<T>, reached as x[lane] in a function that each()
// calls:
//
//   Lanes<float> x;
//   warp.each([&](int lane) { x[lane] = in[lane] * 2; });
//   const uint32_t most = warp.maximum(bits);      // of all lanes, known to all
//   const auto other = warp.shuffled(x, 16);       // of lane ^ 16
//
// Memory that one lane writes and another reads is fenced by warp.sync().
#pragma once

#include <concepts>
#include <cstdint>

#include "cuda/warp/device.h"

namespace ringdist {

inline constexpr int kWarp = 32;

template <typename W>
concept Warp =
    requires(W warp, void (*body)(int), int (*from)(int), typename W::template Lanes<uint32_t> bits,
             typename W::template Lanes<float> x, uint32_t* word) {
      warp.each(body);
      { warp.maximum(bits) } -> std::same_as<uint32_t>;
      { warp.ballot(bits) } -> std::same_as<uint32_t>;  // bit i: lane i's is not 0
      { warp.shuffled(x, 16) } -> std::same_as<typename W::template Lanes<float>>;
      { warp.of(x, 0) } -> std::same_as<float>;  // that lane's, known to all
      // In each lane, that of the lane that from(lane) says.
      { warp.gathered(bits, from) } -> std::same_as<typename W::template Lanes<uint32_t>>;
      { warp.sum(bits) } -> std::same_as<uint32_t>;
      // Memory of its own, as much as its launch asked for.
      { warp.scratch() } -> std::same_as<void*>;
      warp.sync();
      warp.add(word, uint32_t{1});  // to a word of that memory; several lanes may at once
    };

// The bits of the lanes before `lane`.
constexpr uint32_t lanes_before(int lane) { return (uint32_t{1} << lane) - 1; }

// Sums over a warp's lanes.

// In each lane the sum of those of the lanes before it.
template <Warp W>
RINGDIST_DEVICE auto sums_before(W& warp, const typename W::template Lanes<uint32_t>& x) ->
    typename W::template Lanes<uint32_t> {
  typename W::template Lanes<uint32_t> sums = x;
  RINGDIST_UNROLL
  for (int step = 1; step < kWarp; step *= 2) {
    const auto others =
        warp.gathered(sums, [&](int lane) { return lane < step ? lane : lane - step; });
    warp.each([&](int lane) {
      if (lane >= step) sums[lane] += others[lane];
    });
  }
  warp.each([&](int lane) { sums[lane] -= x[lane]; });
  return sums;
}

}  // namespace ringdist
