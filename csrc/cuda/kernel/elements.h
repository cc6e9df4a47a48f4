// Elementwise operations on an op's values, apart from codecs. They are bit-identical to those of
// kernel/cast.h and kernel/feedback.h. Each type is both the arguments of a call and its body on
// the device, which is operator()(i) for every i below `count`. Values must be aligned to their
// size.
#pragma once

#include <cstdint>
#include <variant>

#include "base/dtype.h"
#include "cuda/kernel/batched_calls.h"
#include "cuda/kernel/block_values.h"
#include "cuda/kernel/encode_input.h"
#include "cuda/warp/device.h"
#include "kernel/half.h"

namespace ringdist::gpu {

// Returns element i of values that are stored as `dtype`, which is fp32, bf16 or fp16.
RINGDIST_DEVICE float stored_at(DType dtype, const void* in, int64_t i) {
  if (dtype == DType::kFloat32) return static_cast<const float*>(in)[i];
  const uint16_t bits = static_cast<const uint16_t*>(in)[i];
  return dtype == DType::kBFloat16 ? bfloat_to_float(bits) : half_to_float(bits);
}

// Stores `value` as element i. Returns the stored value, which is rounded to `dtype`.
RINGDIST_DEVICE float store_at(DType dtype, float value, void* out, int64_t i) {
  if (dtype == DType::kFloat32) return static_cast<float*>(out)[i] = value;
  const bool bfloat = dtype == DType::kBFloat16;
  const uint16_t bits = bfloat ? float_to_bfloat(value) : float_to_half(value);
  static_cast<uint16_t*>(out)[i] = bits;
  return bfloat ? bfloat_to_float(bits) : half_to_float(bits);
}

// Computes out[i] = in[i], or out[i] += in[i].
struct Read {
  DType dtype = DType::kFloat32;
  const void* in = nullptr;
  bool accumulate = false;
  float* out = nullptr;
  int64_t count = 0;

  RINGDIST_DEVICE void operator()(int64_t i) const {
    const float value = stored_at(dtype, in, i);
    out[i] = accumulate ? out[i] + value : value;
  }
};

// Stores out[i] = in[i] + residual, rounded to `dtype`. The rounding error becomes the new
// residual. If the residual does not apply, or the error is not finite, it stays as it was.
struct Write {
  DType dtype = DType::kFloat32;
  const float* in = nullptr;
  ResidualPointers residual;
  void* out = nullptr;
  int64_t count = 0;

  RINGDIST_DEVICE void operator()(int64_t i) const {
    const bool applies = residual.applies();
    const float value = applies ? in[i] + residual.from[i] : in[i];
    const float lost = value - store_at(dtype, value, out, i);
    if (!residual.empty()) residual.to[i] = applies && finite(lost) ? lost : residual.from[i];
  }
};

// Adds an own contribution that is not encoded: sum[i] += in[i] + residual.
struct Contribute {
  const float* in = nullptr;
  ResidualPointers residual;
  bool first = false;  // begins the sum instead of adding to it
  float* sum = nullptr;
  int64_t count = 0;

  RINGDIST_DEVICE void operator()(int64_t i) const {
    const float mine = residual.applies() ? in[i] + residual.from[i] : in[i];
    sum[i] = first ? mine : sum[i] + mine;
  }
};

// Adds the loss on a sum, times `weight`, to the residual of the rank that encoded the sum. The
// residual already has the loss of the rank's own contribution. If that was added without encoding
// (`raw`), it lost nothing, and the old residual has been applied.
struct WriteResidual {
  ResidualPointers residual;  // must not be empty
  bool raw = false;
  float weight = 1;
  const float* sum = nullptr;
  const float* stored = nullptr;
  int64_t count = 0;

  RINGDIST_DEVICE void operator()(int64_t i) const {
    const float before = raw ? residual.from[i] : residual.to[i];
    const float kept = raw && residual.applies() ? 0.0f : before;
    const float next = kept + weight * (sum[i] - stored[i]);
    residual.to[i] = finite(next) ? next : before;
  }
};

// Divides all values by the number of ranks, for an average.
struct Divide {
  float* values = nullptr;
  float divisor = 1;
  int64_t count = 0;

  RINGDIST_DEVICE void operator()(int64_t i) const { values[i] /= divisor; }
};

// Sets *found = 1 if any value is neither +0 nor -0. Otherwise leaves it unchanged. Several threads
// may store the 1, which needs no atomic operation.
struct FindValues {
  DType dtype = DType::kFloat32;
  const void* in = nullptr;
  uint32_t* found = nullptr;
  int64_t count = 0;

  RINGDIST_DEVICE void operator()(int64_t i) const {
    if (magnitude_bits(stored_at(dtype, in, i)) != 0) *found = 1;
  }
};

using Elements = std::variant<Read, Write, Contribute, WriteResidual, Divide, FindValues>;

inline constexpr int kThreads = 256;  // threads of a thread block

// An operation as a body in batches, with one element per thread.
template <typename Each>
struct InBatches {
  Each each;

  static constexpr int kScratch = 0;
  constexpr int64_t batches() const { return (each.count + kThreads - 1) / kThreads; }
  RINGDIST_DEVICE void operator()(const int& thread, int64_t index) const {
    const int64_t i = index * kThreads + thread;
    if (i < each.count) each(i);
  }
};

// Calls launch(body) with the bodies for all calls (CallGatherer).
template <typename Launch, typename... Each>
LaunchError with_bodies(CallSpan<std::variant<Each...>> calls, const Launch& launch) {
  CallGatherer gathered(BodyTypes<InBatches<Each>...>(), launch);
  for (const auto& call : calls)
    std::visit([&](const auto& each) { gathered.add(InBatches{each}); }, call);
  return gathered.finish();
}

}  // namespace ringdist::gpu
