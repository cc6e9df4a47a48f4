// What is done element by element to an op's values on a device, besides codecs: the twins of
// kernel/cast.h and kernel/feedback.h, bit for bit. Each is a call and, on the device, its body:
// operator()(i) for every i below `count`. Values lie aligned to their size.
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

// What is stored as `dtype`: fp32, bf16 or fp16.
RINGDIST_DEVICE float stored_at(DType dtype, const void* in, int64_t i) {
  if (dtype == DType::kFloat32) return static_cast<const float*>(in)[i];
  const uint16_t bits = static_cast<const uint16_t*>(in)[i];
  return dtype == DType::kBFloat16 ? bfloat_to_float(bits) : half_to_float(bits);
}

// Returns what `value` has become.
RINGDIST_DEVICE float store_at(DType dtype, float value, void* out, int64_t i) {
  if (dtype == DType::kFloat32) return static_cast<float*>(out)[i] = value;
  const bool bfloat = dtype == DType::kBFloat16;
  const uint16_t bits = bfloat ? float_to_bfloat(value) : float_to_half(value);
  static_cast<uint16_t*>(out)[i] = bits;
  return bfloat ? bfloat_to_float(bits) : half_to_float(bits);
}

// out[i] = in[i], or out[i] += in[i].
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

// out[i] = in[i] + what is owed, as stored; what that lost will be owed.
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

// An own contribution that is not encoded: sum[i] += in[i] + what is owed.
struct Contribute {
  const float* in = nullptr;
  ResidualPointers residual;
  bool first = false;  // of the sum
  float* sum = nullptr;
  int64_t count = 0;

  RINGDIST_DEVICE void operator()(int64_t i) const {
    const float mine = residual.applies() ? in[i] + residual.from[i] : in[i];
    sum[i] = first ? mine : sum[i] + mine;
  }
};

// What a sum's owner will owe: the loss on the sum times `weight`, besides what its own
// contribution left - nothing if that went in as it was (`raw`), with what was owed.
struct WriteResidual {
  ResidualPointers residual;  // not empty
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

struct Divide {
  float* values = nullptr;
  float divisor = 1;
  int64_t count = 0;

  RINGDIST_DEVICE void operator()(int64_t i) const { values[i] /= divisor; }
};

// *found = 1 if any value is neither +0 nor -0; else it stays as it is.
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

inline constexpr int kThreads = 256;  // of a thread block

// One of those as a body: a batch has an element for each thread.
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

// Calls launch(body) with the bodies of the kernels that serve calls (CallGatherer).
template <typename Launch, typename... Each>
LaunchError with_bodies(CallSpan<std::variant<Each...>> calls, const Launch& launch) {
  CallGatherer gathered(BodyTypes<InBatches<Each>...>(), launch);
  for (const auto& call : calls)
    std::visit([&](const auto& each) { gathered.add(InBatches{each}); }, call);
  return gathered.finish();
}

}  // namespace ringdist::gpu
