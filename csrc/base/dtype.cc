#include "base/dtype.h"

#include <array>

namespace ringdist {
namespace {

// Classes of dtypes with the same reductions. Each has one bit.
enum Class : unsigned { kFloat = 1, kInteger = 2, kBoolean = 4, kComplex = 8, kOpaque = 16 };

struct DTypeRow {
  std::string_view name;
  size_t size;
  Class is;
};
// Rows are in the order of the enum.
constexpr std::array<DTypeRow, 19> kDTypes{{{"float64", 8, kFloat},
                                            {"float32", 4, kFloat},
                                            {"bfloat16", 2, kFloat},
                                            {"float16", 2, kFloat},
                                            {"int64", 8, kInteger},
                                            {"int32", 4, kInteger},
                                            {"int16", 2, kInteger},
                                            {"int8", 1, kInteger},
                                            {"uint8", 1, kInteger},
                                            {"bytes", 1, kOpaque},
                                            {"bool", 1, kBoolean},
                                            {"uint16", 2, kInteger},
                                            {"uint32", 4, kInteger},
                                            {"uint64", 8, kInteger},
                                            {"complex32", 4, kComplex},
                                            {"complex64", 8, kComplex},
                                            {"complex128", 16, kComplex},
                                            {"float8_e4m3fn", 1, kFloat},
                                            {"float8_e5m2", 1, kFloat}}};

struct ReduceOpRow {
  std::string_view name;
  unsigned classes;  // bits of the classes for which it is defined
};
// Rows are in the order of the enum.
constexpr std::array<ReduceOpRow, 10> kReduceOps{
    {{"SUM", kFloat | kInteger | kBoolean | kComplex},
     {"AVG", kFloat | kInteger | kComplex},
     {"MIN", kFloat | kInteger | kBoolean},
     {"MAX", kFloat | kInteger | kBoolean},
     {"PRODUCT", kFloat | kInteger | kBoolean | kComplex},
     {"none", 0},
     {"BAND", kInteger | kBoolean},
     {"BOR", kInteger | kBoolean},
     {"BXOR", kInteger | kBoolean},
     {"PREMUL_SUM", kFloat | kInteger | kComplex}}};

}  // namespace

size_t dtype_size(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)).size; }

bool is_reducible(DType dtype, ReduceOp op) {
  const auto d = static_cast<size_t>(dtype);
  const auto o = static_cast<size_t>(op);
  return d < kDTypes.size() && o < kReduceOps.size() && (kDTypes[d].is & kReduceOps[o].classes);
}

std::string reducible_dtypes(ReduceOp op) {
  std::string out;
  for (size_t i = 0; i < kDTypes.size(); ++i)
    if (is_reducible(static_cast<DType>(i), op))
      out += (out.empty() ? "" : ", ") + std::string(kDTypes[i].name);
  return out;
}

// These two functions also format numbers that a peer sent, so any number must be safe.
std::string_view dtype_name(DType dtype) {
  const auto i = static_cast<size_t>(dtype);
  return i < kDTypes.size() ? kDTypes[i].name : "unknown dtype";
}

std::string_view reduce_op_name(ReduceOp op) {
  const auto i = static_cast<size_t>(op);
  return i < kReduceOps.size() ? kReduceOps[i].name : "unknown reduction";
}

bool is_half(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

}  // namespace ringdist
