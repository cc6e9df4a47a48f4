// What is encoded: values, and with them what is owed.
#pragma once

#include <cstdint>

#include "cuda/kernel/block_at.h"
#include "cuda/kernel/block_values.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

// Error feedback on a device: kernel/residual_span.h without its count.
struct ResidualPointers {
  const float* from = nullptr;  // null: none
  float* to = nullptr;          // may be from
  // Null, or on the device: 0 if the values are all zero. Nothing is then paid, and what is owed
  // stays.
  const uint32_t* awake = nullptr;

  constexpr bool empty() const { return from == nullptr; }
  RINGDIST_DEVICE bool applies() const { return !empty() && (awake == nullptr || *awake != 0); }
  constexpr ResidualPointers at(int64_t begin) const {
    return empty() ? *this : ResidualPointers{from + begin, to + begin, awake};
  }
};

struct EncodeInput {
  const float* in;
  ResidualPointers residual;

  // `pays`: owed.pays(). Beyond what is there, zeros.
  template <Warp W, int kParts>
  RINGDIST_DEVICE void read(W& warp, BlockAt at, bool applies, Values<W, kParts>& sum) const {
    fill(warp, sum, 0);
    each_element<kParts>(warp, at.count, [&](int part, int lane, int i) {
      sum.part[part][lane] = in[at.begin + i];
    });
    if (applies)
      each_element<kParts>(warp, at.count, [&](int part, int lane, int i) {
        sum.part[part][lane] += residual.from[at.begin + i];
      });
  }

  // `x`: what others will have of `sum`. There is something owed.
  template <Warp W, int kParts>
  RINGDIST_DEVICE void keep_loss(W& warp, BlockAt at, bool applies, const Values<W, kParts>& sum,
                                 const Values<W, kParts>& x) const {
    const ResidualPointers mine = residual.at(at.begin);
    each_element<kParts>(warp, at.count, [&](int part, int lane, int i) {
      const float lost = sum.part[part][lane] - x.part[part][lane];
      mine.to[i] = applies && finite(lost) ? lost : mine.from[i];
    });
  }
};

}  // namespace ringdist::gpu
