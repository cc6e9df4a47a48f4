// Maps NCCL's types and reductions to the ones of this project.
#pragma once

#include <map>

#include "base/dtype.h"
#include "cuda/api/nccl_api.h"

namespace ringdist {

inline DType dtype_of(gpu::NcclType type) {
  using gpu::NcclType;
  static const std::map<NcclType, DType> kAll{{NcclType::kInt8, DType::kInt8},
                                              {NcclType::kUint8, DType::kUInt8},
                                              {NcclType::kInt32, DType::kInt32},
                                              {NcclType::kUint32, DType::kUInt32},
                                              {NcclType::kInt64, DType::kInt64},
                                              {NcclType::kUint64, DType::kUInt64},
                                              {NcclType::kFloat16, DType::kFloat16},
                                              {NcclType::kFloat32, DType::kFloat32},
                                              {NcclType::kFloat64, DType::kFloat64},
                                              {NcclType::kBfloat16, DType::kBFloat16},
                                              {NcclType::kFloat8E4M3, DType::kFloat8E4M3FN},
                                              {NcclType::kFloat8E5M2, DType::kFloat8E5M2}};
  return kAll.at(type);
}

inline ReduceOp op_of(gpu::NcclReduce op) {
  using gpu::NcclReduce;
  static const std::map<NcclReduce, ReduceOp> kAll{{NcclReduce::kSum, ReduceOp::kSum},
                                                   {NcclReduce::kProd, ReduceOp::kProduct},
                                                   {NcclReduce::kMax, ReduceOp::kMax},
                                                   {NcclReduce::kMin, ReduceOp::kMin},
                                                   {NcclReduce::kAvg, ReduceOp::kAvg}};
  return kAll.at(op);
}

}  // namespace ringdist
