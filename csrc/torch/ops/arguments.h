// Checks that several operations share, before anything is sent: an Error (kInvalidArgument, or
// kNotSupported where a dtype is wrong) names the argument, what was given and what is accepted.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "torch/ops/call.h"

namespace ringdist {

Error check_root(std::string_view op, int64_t root, int size);
// There is one tensor per rank, so the root's is number 0.
Error check_root_tensor(std::string_view op, int64_t root_tensor);

// One list, with one tensor per rank.
Error check_rank_lists(std::string_view op, const std::string& argument,
                       const std::vector<std::vector<at::Tensor>>& lists, int size);
// One tensor per rank, each dense (and so on) and of the dtype of `like`. `argument[r]` names one.
Error check_rank_list(std::string_view op, const std::string& argument,
                      const std::vector<at::Tensor>& list, const at::Tensor& like, int size,
                      bool written);
// As many as in the other list.
Error check_same_length(std::string_view op, const std::string& argument, size_t length,
                        const std::string& other, size_t wanted);

Result<ReduceOp> to_reduce_op(std::string_view op, const c10d::ReduceOp& given);

// What PREMUL_SUM multiplies by, known to fit the tensors of a call; of other reductions nothing.
class PremulFactor {
 public:
  // Integers take whole factors only; a factor that is a tensor has the dtype of `tensor`.
  static Result<PremulFactor> of(std::string_view op, const c10d::ReduceOp& given,
                                 const at::Tensor& tensor);

  explicit operator bool() const { return scalar_.has_value(); }
  // In place, rounded once.
  void multiply(const at::Tensor& tensor) const;

 private:
  std::optional<at::Scalar> scalar_;
};

// Operations on lists of tensors, of any dtypes, are one op per dtype, in which no tensor is copied
// together with others.

// Indices of the tensors of each dtype; dtypes in the order in which they first come.
std::vector<std::vector<size_t>> by_dtype(const Tensors& tensors);

Tensors pick(const Tensors& tensors, const std::vector<size_t>& indices);

}  // namespace ringdist
