#include "torch/ops/arguments.h"

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>

#include "torch/base/tensors.h"

namespace ringdist {
namespace {

bool is_whole(at::ScalarType type) {
  return at::isIntegralType(type, /*includeBool=*/false) || at::isBarebonesUnsignedType(type);
}

at::ScalarType signed_type(int64_t bytes) {
  if (bytes == 2) return at::kShort;
  return bytes == 4 ? at::kInt : at::kLong;
}

}  // namespace

Error check_root(std::string_view op, int64_t root, int size) {
  if (root >= 0 && root < size) return {};
  return invalid_argument(op, "invalid root rank: " + std::to_string(root) +
                                  "; it must be in [0, " + std::to_string(size) + ")");
}

Error check_root_tensor(std::string_view op, int64_t root_tensor) {
  if (root_tensor == 0) return {};
  return invalid_argument(op, "invalid root tensor: " + std::to_string(root_tensor) +
                                  "; there is one tensor, so it must be 0");
}

Error check_rank_lists(std::string_view op, const std::string& argument,
                       const std::vector<std::vector<at::Tensor>>& lists, int size) {
  if (lists.size() == 1) return {};
  return invalid_argument(
      op, argument + " must be one list of tensors, " + std::to_string(lists.size()) +
              " lists given: it requires a single-element " + argument +
              " list containing a list with " + std::to_string(size) + " tensors");
}

Error check_rank_list(std::string_view op, const std::string& argument,
                      const std::vector<at::Tensor>& list, const at::Tensor& like, int size,
                      bool written) {
  if (list.size() != static_cast<size_t>(size))
    return invalid_argument(op, "the " + argument + " tensor list must have one tensor per rank: " +
                                    std::to_string(size) + " expected, " +
                                    std::to_string(list.size()) + " given");
  if (Error error = check_list(op, argument, list, written)) return error;
  for (size_t i = 0; i < list.size(); ++i)
    if (Error error = check_same_dtype(op, argument + index(i), list[i], like)) return error;
  return {};
}

Error check_same_length(std::string_view op, const std::string& argument, size_t length,
                        const std::string& other, size_t wanted) {
  if (length == wanted) return {};
  return invalid_argument(op, argument + " must have as many tensors as " + other + ": " +
                                  std::to_string(wanted) + " expected, " + std::to_string(length) +
                                  " given");
}

Result<ReduceOp> to_reduce_op(std::string_view op, const c10d::ReduceOp& given) {
  switch (given.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAvg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return ReduceOp::kBand;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kBor;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kBxor;
    case c10d::ReduceOp::PREMUL_SUM:
      return ReduceOp::kPremulSum;
    default:
      return invalid_argument(op,
                              "op is not a reduction; supported: SUM, AVG, PRODUCT, MIN, MAX, "
                              "BAND, BOR, BXOR, PREMUL_SUM");
  }
}

Result<PremulFactor> PremulFactor::of(std::string_view op, const c10d::ReduceOp& given,
                                      const at::Tensor& tensor) {
  PremulFactor out;
  if (given.op_ != c10d::ReduceOp::PREMUL_SUM) return out;
  const auto* supplement =
      static_cast<const c10d::NCCLPreMulSumSupplement*>(given.supplement_.get());
  if (supplement == nullptr)
    return invalid_argument(op, "op PREMUL_SUM has no factor to multiply by");
  const at::Tensor& factor = supplement->tensor_factor;
  if (factor.defined() &&
      (factor.scalar_type() != tensor.scalar_type() || !factor.device().is_cpu()))
    return Error(ErrorKind::kNotSupported,
                 "ringdist: " + std::string(op) + ": the factor of PREMUL_SUM is " +
                     describe(factor) + " on " + factor.device().str() +
                     "; it must be on the CPU and of the tensor's dtype, " + describe(tensor));
  out.scalar_ = factor.defined() ? factor.item() : at::Scalar(supplement->double_factor);
  if (is_whole(tensor.scalar_type()) && !factor.defined()) {
    const double value = supplement->double_factor;
    if (value != std::trunc(value))
      return Error(ErrorKind::kNotSupported, "ringdist: " + std::string(op) + ": PREMUL_SUM of " +
                                                 describe(tensor) + " by " + std::to_string(value) +
                                                 "; integers take whole factors only");
    out.scalar_ = at::Scalar(static_cast<int64_t>(value));
  }
  return out;
}

void PremulFactor::multiply(const at::Tensor& tensor) const {
  // ATen cannot multiply these dtypes itself.
  if (at::isFloat8Type(tensor.scalar_type()))
    tensor.copy_(tensor.to(at::kFloat).mul_(*scalar_));
  else if (tensor.scalar_type() == at::kComplexHalf)
    tensor.copy_(tensor.to(at::kComplexFloat).mul_(*scalar_));
  else if (at::isBarebonesUnsignedType(tensor.scalar_type()))
    // Signed and unsigned products have the same bits.
    tensor.view(signed_type(tensor.element_size())).mul_(*scalar_);
  else
    tensor.mul_(*scalar_);
}

std::vector<std::vector<size_t>> by_dtype(const Tensors& tensors) {
  std::vector<std::vector<size_t>> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto same = std::ranges::find_if(out, [&](const auto& group) {
      return tensors[group[0]].scalar_type() == tensors[i].scalar_type();
    });
    if (same == out.end())
      out.push_back({i});
    else
      same->push_back(i);
  }
  return out;
}

Tensors pick(const Tensors& tensors, const std::vector<size_t>& indices) {
  Tensors out;
  for (const size_t i : indices) out.push_back(tensors[i]);
  return out;
}

}  // namespace ringdist
