// Element types that collectives carry, and the reductions over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ringdist {

// The numbers go over the wire in fingerprints: append only.
enum class DType : uint8_t {
  kFloat64 = 0,
  kFloat32,
  kBFloat16,
  kFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBytes,  // a barrier's token: never reduced
  kBool,
  kUInt16,
  kUInt32,
  kUInt64,
  kComplex32,
  kComplex64,
  kComplex128,
  kFloat8E4M3FN,
  kFloat8E5M2,
};

// The numbers go over the wire in fingerprints: append only.
enum class ReduceOp : uint8_t {
  kSum = 0,
  kAvg,
  kMin,
  kMax,
  kProduct,
  kNone,
  kBand,
  kBor,
  kBxor,
  kPremulSum,  // a sum of what each rank has multiplied by its factor before the call
};

size_t dtype_size(DType dtype);  // bytes

// Whether the operation has a meaning for the dtype, i.e. whether kernel/reduce.h has it:
//   SUM PRODUCT       every dtype but bytes; of bools `or` and `and`
//   PREMUL_SUM        those, without bool
//   AVG               those, without bool; integers truncate toward zero
//   MIN MAX           those that are ordered: all but complex; of bools `and` and `or`
//   BAND BOR BXOR     integers and bool
bool is_reducible(DType dtype, ReduceOp op);
// The dtypes that the operation has a meaning for: "float64, float32, ..."
std::string reducible_dtypes(ReduceOp op);

std::string_view dtype_name(DType dtype);      // torch's name: "float32"
std::string_view reduce_op_name(ReduceOp op);  // torch's name: "SUM"
bool is_half(DType dtype);                     // fp16 or bf16: accumulated in fp32

}  // namespace ringdist
