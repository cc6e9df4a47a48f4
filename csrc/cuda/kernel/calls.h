// What the kernels are asked for (cuda/kernel/kernels.h).
#pragma once

#include <cstdint>

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
  kRandomk
};

struct Coding {
  Code code = Code::kInt8;
  bool stochastic = false;  // kBFloat and kInt8 only
  bool rotated = false;
  int k = 1;  // of 1024: of kTopk and kRandomk
};

struct EncodeCall {
  const float* in = nullptr;
  const float* from = nullptr;  // added to `in`: what is owed; null for no error feedback
  float* to = nullptr;          // what will be owed; may be `from`
  int64_t count = 0;            // elements
  Seed seed;                    // as codec/codec.h's
  uint8_t* out = nullptr;       // as many bytes as Codec::max_bytes() says
};

struct DecodeCall {
  const uint8_t* in = nullptr;
  Seed seed;
  bool accumulate = false;  // add to `out`
  float* out = nullptr;
  int64_t count = 0;
  int* malformed =
      nullptr;  // set to 1 by a block of bytes that no encoder writes, which is left out
};

}  // namespace ringdist::gpu
