// A warp on the host (csrc/cuda/warp/warp.h): its lanes take turns, and see what a device's would.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "cuda/warp/warp.h"

namespace ringdist {

class HostWarp {
 public:
  template <typename T>
  using Lanes = std::array<T, kWarp>;

  explicit HostWarp(int scratch = 0) : scratch_(static_cast<size_t>(scratch) / sizeof(Unit)) {}

  // In one order and in the other, by turns: no lane may count on what another has just done.
  template <typename Body>
  void each(Body body) {
    backwards_ = !backwards_;
    for (int progress = 0; progress < kWarp; ++progress)
      body(backwards_ ? kWarp - 1 - progress : progress);
  }
  uint32_t maximum(const Lanes<uint32_t>& x) const { return *std::ranges::max_element(x); }
  uint32_t sum(const Lanes<uint32_t>& x) const {
    return std::accumulate(x.begin(), x.end(), uint32_t{0});
  }
  uint32_t ballot(const Lanes<uint32_t>& x) const {
    uint32_t out = 0;
    for (int progress = 0; progress < kWarp; ++progress)
      out |= static_cast<uint32_t>(x[at(progress)] != 0) << progress;
    return out;
  }
  template <typename T>
  Lanes<T> shuffled(const Lanes<T>& x, int flip) const {
    Lanes<T> out;
    for (int progress = 0; progress < kWarp; ++progress) out[at(progress)] = x[at(progress ^ flip)];
    return out;
  }
  template <typename T, typename From>
  Lanes<T> gathered(const Lanes<T>& x, From from) const {
    Lanes<T> out;
    for (int progress = 0; progress < kWarp; ++progress) out[at(progress)] = x[at(from(progress))];
    return out;
  }
  template <typename T>
  T of(const Lanes<T>& x, int progress) const {
    return x[at(progress)];
  }
  void* scratch() { return scratch_.data(); }
  void add(uint32_t* word, uint32_t value) const { *word += value; }
  void sync() const {}

 private:
  static constexpr size_t at(int progress) { return static_cast<size_t>(progress); }

  using Unit = uint64_t;  // aligned for whatever a body puts there
  bool backwards_ = false;
  std::vector<Unit> scratch_;  // on the heap, for AddressSanitizer
};

// What a launch of `body` does.
template <typename Body>
void for_each_batch(const Body& body) {
  HostWarp warp(Body::kScratch);
  for (int64_t index = 0; index < body.batches(); ++index) body(warp, index);
}

}  // namespace ringdist
