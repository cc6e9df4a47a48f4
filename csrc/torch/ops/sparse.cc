#include "torch/ops/sparse.h"

#include <algorithm>
#include <array>

#include "torch/errors.h"
#include "torch/ops/reduction.h"

namespace ringdist {
namespace {

Error check_sparse(const Tensors& tensors) {
  if (tensors.size() != 1) return check_single("all_reduce", "tensor", tensors, /*written=*/true);
  const at::Tensor& tensor = tensors[0];
  if (!tensor.defined()) return check_tensor("all_reduce", "tensor", tensor, /*written=*/true);
  if (tensor.layout() != at::kSparse)
    return invalid_argument("all_reduce",
                            "tensor has an unsupported layout: " + c10::str(tensor.layout()) +
                                "; it must be sparse (COO)");
  return check_on_cpu("all_reduce", "tensor", tensor);
}

// ATen adds up the entries.
Error check_sparse_dtype(const at::Tensor& tensor, DType dtype) {
  constexpr std::array kSparse{DType::kFloat64,   DType::kFloat32,   DType::kFloat16,
                               DType::kBFloat16,  DType::kInt64,     DType::kInt32,
                               DType::kInt16,     DType::kInt8,      DType::kUInt8,
                               DType::kComplex64, DType::kComplex128};
  if (std::ranges::find(kSparse, dtype) != kSparse.end()) return {};
  std::string names;
  for (const DType one : kSparse)
    names += (names.empty() ? "" : ", ") + std::string(dtype_name(one));
  return Error(ErrorKind::kNotSupported, "ringdist: all_reduce: tensor is " + describe(tensor) +
                                             ", a dtype that sparse tensors cannot be added up in; "
                                             "supported: " +
                                             names);
}

}  // namespace

SparseCall sparse_allreduce_call(const Tensors& tensors, const c10d::AllreduceOptions& opts) {
  throw_if(check_sparse(tensors));
  const Reduction how = Reduction::of("all_reduce", "tensor", tensors[0], opts.reduceOp);
  throw_if(check_sparse_dtype(tensors[0], how.dtype));
  if (how.op != ReduceOp::kSum && how.op != ReduceOp::kAvg)
    throw_error(invalid_argument(
        "all_reduce", "unsupported reduction operation " + std::string(reduce_op_name(how.op)) +
                          ": allreduce of sparse tensors takes SUM and AVG"));
  const bool unset = opts.timeout == c10d::kUnsetTimeout;
  return {tensors[0], how.dtype, how.op,
          unset ? Milliseconds(0) : value_of(checked_timeout("all_reduce", opts.timeout))};
}

}  // namespace ringdist
