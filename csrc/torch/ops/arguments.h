// Checks that several operations share, before anything is sent. An Error names the argument, the
// given and the accepted values. Its kind is kInvalidArgument, or kNotSupported for a wrong dtype
// or device. Any thread.
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

// Checks that `root` is a rank of a group of `size` ranks.
Error check_root(std::string_view op, int64_t root, int size);
// Checks that the root's tensor has number 0, because each rank has only one.
Error check_root_tensor(std::string_view op, int64_t root_tensor);

// Checks that there is exactly one list. The other checks cover its tensors.
Error check_rank_lists(std::string_view op, const std::string& argument,
                       const std::vector<std::vector<at::Tensor>>& lists, int size);
// Checks that there is one tensor per rank, each dense (see check_tensor()) and with the dtype of
// `like`. Errors name a tensor `argument[r]`.
Error check_rank_list(std::string_view op, const std::string& argument,
                      const std::vector<at::Tensor>& list, const at::Tensor& like, int size,
                      bool written);
// Checks that two lists have the same length.
Error check_same_length(std::string_view op, const std::string& argument, size_t length,
                        const std::string& other, size_t wanted);

// Converts PyTorch's reduction. Error: kInvalidArgument if it is none.
Result<ReduceOp> to_reduce_op(std::string_view op, const c10d::ReduceOp& given);

// The factor of PREMUL_SUM, checked against the tensors of a call. Empty for other reductions.
class PremulFactor {
 public:
  // Checks a factor. Integer tensors accept whole factors only. A factor tensor must be on the CPU
  // and have the dtype of `tensor`. Otherwise fails with kNotSupported. Fails with kInvalidArgument
  // if there is no factor.
  static Result<PremulFactor> of(std::string_view op, const c10d::ReduceOp& given,
                                 const at::Tensor& tensor);

  explicit operator bool() const { return scalar_.has_value(); }
  // Multiplies a tensor in place, with one rounding per element. There must be a factor.
  void multiply(const at::Tensor& tensor) const;

 private:
  std::optional<at::Scalar> scalar_;
};

// Operations on lists of tensors with several dtypes run as one op per dtype, and no tensor is
// copied to join it with others. Returns the indices of the tensors of each dtype. Dtypes are in
// the order of their first tensors.
std::vector<std::vector<size_t>> by_dtype(const Tensors& tensors);

// Returns the tensors with these indices.
Tensors pick(const Tensors& tensors, const std::vector<size_t>& indices);

}  // namespace ringdist
