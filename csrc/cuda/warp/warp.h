// Model of a warp for the bodies of kernels: 32 lanes in lockstep, each with its own variables,
// which can exchange values. A body is a template over a type that models the concept Warp. There
// are two such types: DeviceWarp (device_warp.h) for nvcc, and one in the tests that runs the lanes
// in turn.
//
// A value that is the same in all lanes is an ordinary variable. Outside of each(), a body may
// branch only on such values. A value per lane is a Lanes<T>, which is accessed as x[lane] in a
// function that each() calls:
//
//   `Lanes<float> x;`
//   `warp.each([&](int lane) { x[lane] = in[lane] * 2; });`
//   `const uint32_t most = warp.maximum(bits);`  over all lanes, returned to all lanes
//   `const auto other = warp.shuffled(x, 16);`   from lane ^ 16
//
// Memory that one lane writes and another reads needs warp.sync() in between.
#pragma once

#include <concepts>
#include <cstdint>

#include "cuda/warp/device.h"

namespace ringdist {

inline constexpr int kWarp = 32;

// Operations of a warp.
template <typename W>
concept Warp =
    requires(W warp, void (*body)(int), int (*from)(int), typename W::template Lanes<uint32_t> bits,
             typename W::template Lanes<float> x, uint32_t* word) {
      warp.each(body);
      { warp.maximum(bits) } -> std::same_as<uint32_t>;
      { warp.ballot(bits) } -> std::same_as<uint32_t>;  // bit i is set if lane i's value is not 0
      { warp.shuffled(x, 16) } -> std::same_as<typename W::template Lanes<float>>;
      { warp.of(x, 0) } -> std::same_as<float>;  // the value of that lane, returned to all lanes
      // Returns to each lane the value of lane from(lane).
      { warp.gathered(bits, from) } -> std::same_as<typename W::template Lanes<uint32_t>>;
      { warp.sum(bits) } -> std::same_as<uint32_t>;
      // Returns memory of this warp, of the size that the launch requested.
      { warp.scratch() } -> std::same_as<void*>;
      warp.sync();
      // adds to a word of that memory; several lanes may do so at once
      warp.add(word, uint32_t{1});
    };

// Returns a mask of the lanes before `lane`.
constexpr uint32_t lanes_before(int lane) { return (uint32_t{1} << lane) - 1; }

// Returns to each lane the sum over the lanes before it. This is the scan of Hillis and Steele:
// each of five steps doubles the number of lanes that a sum covers.
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
