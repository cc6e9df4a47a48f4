// Arguments of the kernels (cuda/kernel/kernels.h).
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "cuda/kernel/encode_input.h"
#include "cuda/kernel/seed.h"

namespace ringdist::gpu {

// A cudaError_t; 0 means success.
using LaunchError = int;

// Codecs that have kernels.
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

// A codec with its parameters.
struct KernelCodec {
  Code code = Code::kInt8;
  bool stochastic = false;  // kBFloat and kInt8 only
  bool rotated = false;
  int k = 1;                      // elements sent per 1024, for kTopk and kRandomk
  DType dtype = DType::kFloat32;  // stored type of values, for kLossless

  bool operator==(const KernelCodec&) const = default;
};

// Independent calls with one KernelCodec.
template <typename Call>
using CallSpan = std::span<const Call>;

// Encodes values.
struct EncodeCall {
  const float* in = nullptr;
  ResidualPointers residual;  // added to `in`; empty without error feedback
  int64_t count = 0;          // elements; kLossless needs a max_bytes() below 4 GiB
  Seed seed;                  // see codec/codec.h
  uint8_t* out = nullptr;     // room for Codec::max_bytes() bytes
};

// Decodes values.
struct DecodeCall {
  const uint8_t* in = nullptr;
  Seed seed;
  bool accumulate = false;  // add to `out`
  float* out = nullptr;
  int64_t count = 0;
  // Set to 1 if a block has bytes that no encoder writes; that block is skipped. For kLossless, set
  // if the decoder rejects the bytes, and `out` is undefined then.
  int* malformed = nullptr;
};

// Sources of a reduction, which are parameters of its launch.
struct SourceList {
  // Their pointers take 2 of the 4 KiB that the parameters of a launch may have.
  static constexpr int kMost = 256;
  int count = 0;
  const void* at[kMost] = {};
};

// Reduces elementwise: out[i] = sources.at[0][i] op sources.at[1][i] op ..., with the results of
// kernel/reduce.h.
struct ReduceCall {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  SourceList sources;
  int64_t divisor = 1;  // divides the result: the number of ranks for kAvg
  void* out = nullptr;  // may be one of the sources
  int64_t count = 0;    // elements
};

}  // namespace ringdist::gpu
