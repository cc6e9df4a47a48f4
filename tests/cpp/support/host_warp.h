// A warp on the host (csrc/cuda/warp/warp.h). Its lanes run one after another and observe the same
// values as on a device. Single-threaded.
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

  // Runs `body` for each lane, alternately in ascending and descending order. This shows code in
  // which a lane relies on a side effect of another lane of the same step.
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

  using Unit = uint64_t;  // aligned for everything that a body stores there
  bool backwards_ = false;
  std::vector<Unit> scratch_;  // on the heap, so that AddressSanitizer checks accesses
};

// Runs `body` for each batch, like a kernel launch.
template <typename Body>
void for_each_batch(const Body& body) {
  HostWarp warp(Body::kScratch);
  for (int64_t index = 0; index < body.batches(); ++index) body(warp, index);
}

}  // namespace ringdist
