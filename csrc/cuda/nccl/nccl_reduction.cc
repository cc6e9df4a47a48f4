#include "cuda/nccl/nccl_reduction.h"

namespace ringdist::gpu {
namespace {

// Representation of a dtype in NCCL.
struct Numbers {
  NcclType type;
  int64_t each = 1;  // numbers in an element
  bool integers = false;
  bool fp8 = false;
};

// Returns the representation, or nullopt if NCCL cannot reduce the dtype.
std::optional<Numbers> numbers_of(DType dtype, bool has_fp8) {
  switch (dtype) {
    case DType::kFloat64:
      return Numbers{NcclType::kFloat64};
    case DType::kFloat32:
      return Numbers{NcclType::kFloat32};
    case DType::kBFloat16:
      return Numbers{NcclType::kBfloat16};
    case DType::kFloat16:
      return Numbers{NcclType::kFloat16};
    case DType::kInt64:
      return Numbers{NcclType::kInt64, 1, true};
    case DType::kInt32:
      return Numbers{NcclType::kInt32, 1, true};
    case DType::kInt8:
      return Numbers{NcclType::kInt8, 1, true};
    case DType::kUInt8:
      return Numbers{NcclType::kUint8, 1, true};
    case DType::kUInt32:
      return Numbers{NcclType::kUint32, 1, true};
    case DType::kUInt64:
      return Numbers{NcclType::kUint64, 1, true};
    case DType::kComplex32:
      return Numbers{NcclType::kFloat16, 2};
    case DType::kComplex64:
      return Numbers{NcclType::kFloat32, 2};
    case DType::kComplex128:
      return Numbers{NcclType::kFloat64, 2};
    case DType::kFloat8E4M3FN:
      if (has_fp8) return Numbers{NcclType::kFloat8E4M3, 1, false, true};
      return std::nullopt;
    case DType::kFloat8E5M2:
      if (has_fp8) return Numbers{NcclType::kFloat8E5M2, 1, false, true};
      return std::nullopt;
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kBool:
    case DType::kBytes:
      return std::nullopt;
  }
  return std::nullopt;
}

// Returns NCCL's op, or nullopt if its results differ from those on the host.
std::optional<NcclReduce> op_of(ReduceOp op, const Numbers& numbers) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kPremulSum:
      return NcclReduce::kSum;
    case ReduceOp::kAvg:
      if (!numbers.integers && !numbers.fp8) return NcclReduce::kAvg;
      return std::nullopt;
    case ReduceOp::kProduct:
      if (numbers.each == 1) return NcclReduce::kProd;
      return std::nullopt;
    case ReduceOp::kMin:
      if (numbers.integers) return NcclReduce::kMin;
      return std::nullopt;
    case ReduceOp::kMax:
      if (numbers.integers) return NcclReduce::kMax;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<NcclReduction> nccl_reduction(DType dtype, ReduceOp op, bool has_fp8) {
  const auto numbers = numbers_of(dtype, has_fp8);
  if (!numbers) return std::nullopt;
  const auto theirs = op_of(op, *numbers);
  if (!theirs) return std::nullopt;
  return NcclReduction{numbers->type, *theirs, numbers->each};
}

}  // namespace ringdist::gpu
