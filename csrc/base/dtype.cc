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

// Rows are in the order of the enum.
constexpr std::array<ReduceOpTraits, 10> kReduceOps{
    {{"SUM", kFloat | kInteger | kBoolean | kComplex, true, "sum"},
     {"AVG", kFloat | kInteger | kComplex, true, "average"},
     {"MIN", kFloat | kInteger | kBoolean, false, "min", NeutralElement::kMost},
     {"MAX", kFloat | kInteger | kBoolean, false, "max", NeutralElement::kLeast},
     {"PRODUCT", kFloat | kInteger | kBoolean | kComplex, false, "product", NeutralElement::kOne},
     {"none", 0, false, ""},
     {"BAND", kInteger | kBoolean, false, ""},
     {"BOR", kInteger | kBoolean, false, ""},
     {"BXOR", kInteger | kBoolean, false, ""},
     {"PREMUL_SUM", kFloat | kInteger | kComplex, true, ""}}};

}  // namespace

size_t dtype_size(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)).size; }

bool is_reduce_op(ReduceOp op) { return static_cast<size_t>(op) < kReduceOps.size(); }

const ReduceOpTraits& traits_of(ReduceOp op) { return kReduceOps.at(static_cast<size_t>(op)); }

std::span<const ReduceOp> all_reduce_ops() {
  static constexpr auto kAll = [] {
    std::array<ReduceOp, kReduceOps.size() - 1> out{};
    for (size_t i = 0, n = 0; i < kReduceOps.size(); ++i)
      if (const auto op = static_cast<ReduceOp>(i); op != ReduceOp::kNone) out[n++] = op;
    return out;
  }();
  return kAll;
}

bool is_reducible(DType dtype, ReduceOp op) {
  const auto d = static_cast<size_t>(dtype);
  return d < kDTypes.size() && is_reduce_op(op) && (kDTypes[d].is & traits_of(op).classes);
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
  return is_reduce_op(op) ? traits_of(op).name : "unknown reduction";
}

bool is_half(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

}  // namespace ringdist
