// Input of an encoder: values plus their residual.
#pragma once

#include <cstdint>

#include "cuda/kernel/block_at.h"
#include "cuda/kernel/block_values.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

// Pointers to a residual on a device. They are those of kernel/residual_span.h without the count.
struct ResidualPointers {
  const float* from = nullptr;  // null without error feedback
  float* to = nullptr;          // may be equal to `from`
  // Null, or a flag on the device that is 0 if all values are zero. In that case the residual is
  // not applied and stays as it is.
  const uint32_t* awake = nullptr;

  constexpr bool empty() const { return from == nullptr; }
  RINGDIST_DEVICE bool applies() const { return !empty() && (awake == nullptr || *awake != 0); }
  // Returns the residual from element `begin` on.
  constexpr ResidualPointers at(int64_t begin) const {
    return empty() ? *this : ResidualPointers{from + begin, to + begin, awake};
  }
};

// Values and residual of one call.
struct EncodeInput {
  const float* in;
  ResidualPointers residual;

  // Reads the block's values, plus residuals if `applies` (ResidualPointers::applies). Elements
  // beyond the block are 0.
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

  // Stores the new residual: the difference between `sum` and the decoded values `x`. The old
  // residual is kept if it was not applied, or where the difference is not finite. There must be a
  // residual.
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
