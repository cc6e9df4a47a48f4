// Element types that collectives carry, and the reductions over them.
#pragma once

#include <cstddef>
#include <cstdint>
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
  kBytes,  // a barrier's token
  // Moved, never reduced:
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

enum class ReduceOp : uint8_t { kSum = 0, kAvg, kMin, kMax, kProduct, kNone };

inline constexpr DType kLastReducible = DType::kUInt8;

size_t dtype_size(DType dtype);
inline bool is_reducible(DType dtype) { return dtype <= kLastReducible; }
std::string_view dtype_name(DType dtype);      // torch's name: "float32"
std::string_view reduce_op_name(ReduceOp op);  // torch's name: "SUM"
bool is_half(DType dtype);                     // fp16 or bf16: accumulated in fp32

}  // namespace ringdist
