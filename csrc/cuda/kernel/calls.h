// What the kernels are asked for (cuda/kernel/kernels.h).
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "cuda/kernel/encode_input.h"
#include "cuda/kernel/seed.h"

namespace ringdist::gpu {

using LaunchError = int;

enum class Code : uint8_t {
  kHalf,
  kBFloat,
  kFp8E4M3,
  kFp8E5M2,
  kInt8,
  kInt4,
  kInt2,
  kOnebit,
  kTopk,
  kRandomk,
  kLossless
};

struct KernelCodec {
  Code code = Code::kInt8;
  bool stochastic = false;  // kBFloat and kInt8 only
  bool rotated = false;
  int k = 1;                      // of 1024: of kTopk and kRandomk
  DType dtype = DType::kFloat32;  // what values are stored as: of kLossless

  bool operator==(const KernelCodec&) const = default;
};

// Calls of one coding, which do not depend on each other.
template <typename Call>
using CallSpan = std::span<const Call>;

struct EncodeCall {
  const float* in = nullptr;
  ResidualPointers residual;  // added to `in`; none for no error feedback
  int64_t count = 0;          // elements; of kLossless less than 4 GiB of them
  Seed seed;                  // as codec/codec.h's
  uint8_t* out = nullptr;     // as many bytes as Codec::max_bytes() says
};

struct DecodeCall {
  const uint8_t* in = nullptr;
  Seed seed;
  bool accumulate = false;  // add to `out`
  float* out = nullptr;
  int64_t count = 0;
  // Set to 1 by a block of bytes that no encoder writes, which is left out; of kLossless, by bytes
  // that its decoder refuses, and then `out` may hold anything.
  int* malformed = nullptr;
};

// A launch carries them.
struct SourceList {
  static constexpr int kMost = 256;
  int count = 0;
  const void* at[kMost] = {};
};

// out[i] = sources.at[0][i] op sources.at[1][i] op ..., as kernel/reduce.h has it.
struct ReduceCall {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  SourceList sources;
  int64_t divisor = 1;
  void* out = nullptr;  // may be one of the sources
  int64_t count = 0;    // elements
};

}  // namespace ringdist::gpu
