#include "base/dtype.h"

#include <array>

namespace ringdist {
namespace {

struct Row {
  std::string_view name;
  size_t size;
};
// In the order of the enum.
constexpr std::array<Row, 19> kDTypes{{{"float64", 8},
                                       {"float32", 4},
                                       {"bfloat16", 2},
                                       {"float16", 2},
                                       {"int64", 8},
                                       {"int32", 4},
                                       {"int16", 2},
                                       {"int8", 1},
                                       {"uint8", 1},
                                       {"bytes", 1},
                                       {"bool", 1},
                                       {"uint16", 2},
                                       {"uint32", 4},
                                       {"uint64", 8},
                                       {"complex32", 4},
                                       {"complex64", 8},
                                       {"complex128", 16},
                                       {"float8_e4m3fn", 1},
                                       {"float8_e5m2", 1}}};
constexpr std::array<std::string_view, 6> kReduceOps{"SUM", "AVG", "MIN", "MAX", "PRODUCT", "none"};

}  // namespace

size_t dtype_size(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)).size; }

// These two also name what a peer sent, so any number must be safe.
std::string_view dtype_name(DType dtype) {
  const auto i = static_cast<size_t>(dtype);
  return i < kDTypes.size() ? kDTypes[i].name : "unknown dtype";
}

std::string_view reduce_op_name(ReduceOp op) {
  const auto i = static_cast<size_t>(op);
  return i < kReduceOps.size() ? kReduceOps[i] : "unknown reduction";
}

bool is_half(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

}  // namespace ringdist
