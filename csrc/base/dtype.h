// Element types that collectives carry, and the reductions over them. Functions are pure; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ringdist {

// Element type. Fingerprints carry these numbers between processes, so new ones are appended only.
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
  kBytes,  // payload of a barrier; never reduced
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

// Reduction. Fingerprints carry these numbers between processes, so new ones are appended only.
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
  kPremulSum,  // sum of values that each rank has already multiplied by its factor
};

// The element that leaves the other operand of a reduction as it is.
enum class NeutralElement : uint8_t { kZero, kOne, kLeast, kMost };

// Properties of a reduction. dtype.cc has the row of each.
struct ReduceOpTraits {
  std::string_view name;          // torch's name: "SUM"
  unsigned classes = 0;           // classes of dtypes for which it is defined; see is_reducible()
  bool sums = false;              // adds values, so it rounds as a sum does
  std::string_view horovod_name;  // name in Horovod's API, such as "sum", or empty
  NeutralElement neutral = NeutralElement::kZero;  // for those in Horovod's API
};

// Returns true for the number of a reduction or of kNone. A peer may send any number.
bool is_reduce_op(ReduceOp op);
// Returns the row of a reduction. Throws std::out_of_range unless is_reduce_op(op).
const ReduceOpTraits& traits_of(ReduceOp op);
// Returns all reductions, without kNone.
std::span<const ReduceOp> all_reduce_ops();

// Throws std::out_of_range for a number that is not in the enum.
size_t dtype_size(DType dtype);  // bytes per element

// Returns true if the operation is defined for the dtype, which means that kernel/reduce.h
// implements it.
//
//   SUM PRODUCT       Every dtype but bytes. For bools they are `or` and `and`.
//   PREMUL_SUM        The same dtypes, without bool.
//   AVG               The same dtypes, without bool. Integers truncate toward zero.
//   MIN MAX           Ordered dtypes, i.e. all but complex. For bools they are `and` and `or`.
//   BAND BOR BXOR     Integers and bool.
bool is_reducible(DType dtype, ReduceOp op);
// Returns the dtypes for which the operation is defined, as "float64, float32, ..." for messages.
std::string reducible_dtypes(ReduceOp op);

// Names for messages. Any number is safe, also one that a peer sent: the result is "unknown ..."
// then.
std::string_view dtype_name(DType dtype);      // torch's name: "float32"
std::string_view reduce_op_name(ReduceOp op);  // torch's name: "SUM"
bool is_half(DType dtype);                     // fp16 or bf16, which are accumulated in fp32

}  // namespace ringdist
