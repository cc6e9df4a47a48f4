// NCCL's types as its binary interface has them since 2.18, declared here so that a build needs no
// nccl.h; tests/cpp/cuda/nccl/nccl_types_test.cc holds them against one where it is.
#pragma once

#include <array>
#include <cstddef>

namespace ringdist::gpu {

using NcclComm = void*;  // ncclComm_t

struct NcclUniqueId {
  std::array<char, 128> internal{};
};

// ncclResult_t. Later versions may return others.
enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// ncclDataType_t
enum class NcclType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8E4M3 = 10,  // from 2.24 on
  kFloat8E5M2 = 11,
};

// ncclRedOp_t
enum class NcclReduce : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

}  // namespace ringdist::gpu
