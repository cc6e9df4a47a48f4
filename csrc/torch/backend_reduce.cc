// Operations that reduce.
#include <algorithm>
#include <array>

#include "torch/arguments.h"
#include "torch/backend.h"
#include "torch/errors.h"

namespace ringdist {
namespace {

// How a call reduces, known to fit its tensors.
struct Reduction {
  ReduceOp op;
  DType dtype;
  Factor factor;

  // `ours` is a copy if there is a factor.
  void prepare(const at::Tensor& ours) const {
    if (factor) factor.multiply(ours);
  }
};

Reduction reduction(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                    const c10d::ReduceOp& given) {
  auto reduce_op = to_reduce_op(op, given);
  throw_if(reduce_op.error());
  auto dtype = to_dtype(op, argument, tensor, reduce_op.value());
  throw_if(dtype.error());
  auto factor = Factor::of(op, given, tensor);
  throw_if(factor.error());
  return {reduce_op.value(), dtype.value(), factor.value()};
}

Error check_sparse(const Tensors& tensors) {
  if (tensors.size() != 1) return check_single("all_reduce", "tensor", tensors, /*written=*/true);
  const at::Tensor& tensor = tensors[0];
  if (!tensor.defined()) return check_tensor("all_reduce", "tensor", tensor, /*written=*/true);
  if (tensor.layout() != at::kSparse)
    return invalid_argument("all_reduce",
                            "tensor has an unsupported layout: " + c10::str(tensor.layout()) +
                                "; it must be sparse (COO)");
  return check_device("all_reduce", "tensor", tensor);
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

Call ProcessGroupRing::allreduce_call(const Tensors& tensors, const std::string& argument,
                                      const c10d::AllreduceOptions& opts) {
  const bool one = tensors.size() == 1;
  const Reduction how = reduction("all_reduce", argument, tensors[0], opts.reduceOp);
  Call call(Collective::kAllreduce, how.dtype,
            one ? c10d::OpType::ALLREDUCE : c10d::OpType::ALLREDUCE_COALESCED,
            "ringdist:all_reduce", Call::manner(opts));
  call.inputs = call.outputs = tensors;
  call.request.reduce_op = how.op;
  const std::vector<bool> shared = overlapping(tensors);
  for (size_t i = 0; i < tensors.size(); ++i)
    how.prepare(call.update(tensors[i], /*apart=*/shared[i] || how.factor));
  call.request.count = call.request.output.count();
  return call;
}

ProcessGroupRing::WorkPtr ProcessGroupRing::allreduce(Tensors& tensors,
                                                      const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].layout() == at::kSparse)
    return allreduce_sparse(tensors, opts);
  return run([&] {
    throw_if(check_single("all_reduce", "tensor", tensors, /*written=*/true));
    Call call = allreduce_call(tensors, "tensor", opts);
    apply_option(call);
    return call;
  });
}

ProcessGroupRing::WorkPtr ProcessGroupRing::allreduce_sparse(Tensors& tensors,
                                                             const c10d::AllreduceOptions& opts) {
  try {
    throw_if(check_sparse(tensors));
    const Reduction how = reduction("all_reduce", "tensor", tensors[0], opts.reduceOp);
    throw_if(check_sparse_dtype(tensors[0], how.dtype));
    if (how.op != ReduceOp::kSum && how.op != ReduceOp::kAvg)
      throw_error(invalid_argument(
          "all_reduce", "unsupported reduction operation " + std::string(reduce_op_name(how.op)) +
                            ": allreduce of sparse tensors takes SUM and AVG"));
    const bool unset = opts.timeout == c10d::kUnsetTimeout;
    WorkPtr work =
        sparse_.reduce(tensors[0], how.dtype, how.op, unset ? Milliseconds(0) : opts.timeout);
    coalescing_.adopt(work);
    return work;
  } catch (...) {
    coalescing_.drop();
    throw;
  }
}

Call ProcessGroupRing::reduce_call(const Tensors& tensors, const c10d::ReduceOptions& opts) {
  throw_if(check_single("reduce", "tensor", tensors, /*written=*/true));
  throw_if(check_root("reduce", opts.rootRank, getSize()));
  throw_if(check_root_tensor("reduce", opts.rootTensor));
  const Reduction how = reduction("reduce", "tensor", tensors[0], opts.reduceOp);
  Call call(Collective::kReduce, how.dtype, c10d::OpType::REDUCE, "ringdist:reduce",
            Call::manner(opts));
  call.inputs = call.outputs = tensors;
  call.request.reduce_op = how.op;
  call.request.root = static_cast<int>(opts.rootRank);
  const bool is_root = opts.rootRank == getRank();
  const at::Tensor ours =
      call.staging.use(tensors[0], /*reads=*/true, /*writes=*/is_root, /*apart=*/!!how.factor);
  how.prepare(call.add(call.request.output, ours));
  call.request.count = ours.numel();
  return call;
}

ProcessGroupRing::WorkPtr ProcessGroupRing::reduce(Tensors& tensors,
                                                   const c10d::ReduceOptions& opts) {
  return run([&] { return reduce_call(tensors, opts); });
}

Call ProcessGroupRing::reduce_scatter_list_call(const Tensors& outputs, const TensorLists& inputs,
                                                const c10d::ReduceScatterOptions& opts) {
  constexpr std::string_view kOp = "reduce_scatter";
  throw_if(check_single(kOp, "output", outputs, /*written=*/true));
  throw_if(check_rank_lists(kOp, "input", inputs, getSize()));
  const at::Tensor& output = outputs[0];
  const Tensors& list = inputs[0];
  throw_if(check_rank_list(kOp, "input", list, output, getSize(), /*written=*/false));
  const std::string own = "input[" + std::to_string(getRank()) + "]";
  throw_if(check_same_size(kOp, "output", output, own, list[getRank()]));
  const Reduction how = reduction(kOp, "output", output, opts.reduceOp);
  Call call(Collective::kReduceScatter, how.dtype, c10d::OpType::REDUCE_SCATTER,
            "ringdist:reduce_scatter", Call::manner(opts));
  call.inputs = list;
  call.outputs = outputs;
  call.request.reduce_op = how.op;
  call.request.input_parts = sizes_of(list);
  call.request.count = settle_parts(call.request.input_parts);
  for (const at::Tensor& input : list) how.prepare(call.read(input, /*apart=*/!!how.factor));
  call.write(output, /*apart=*/share_memory(output, call.memory));
  return call;
}

ProcessGroupRing::WorkPtr ProcessGroupRing::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                           const c10d::ReduceScatterOptions& opts) {
  return run([&] { return reduce_scatter_list_call(outputs, inputs, opts); });
}

void ProcessGroupRing::check_reduce_scatter(const std::string& suffix, const at::Tensor& output,
                                            const at::Tensor& input) const {
  constexpr std::string_view kOp = "reduce_scatter_tensor";
  throw_if(check_tensor(kOp, "input" + suffix, input, /*written=*/false));
  throw_if(check_tensor(kOp, "output" + suffix, output, /*written=*/true));
  throw_if(check_same_dtype(kOp, "output" + suffix, output, input));
  if (input.numel() != output.numel() * getSize())
    throw_error(
        invalid_argument(kOp, "invalid tensor size: input" + suffix + " is " + describe(input) +
                                  ", but the output is " + describe(output) + " on " +
                                  std::to_string(getSize()) + " ranks, so it must have " +
                                  std::to_string(output.numel() * getSize()) + " elements"));
}

// Rank r's part of the input is what all tensors have for r, one after the other.
Call ProcessGroupRing::reduce_scatter_call(const Tensors& outputs, const Tensors& inputs,
                                           const std::string& argument, c10d::OpType type,
                                           const c10d::ReduceScatterOptions& opts) {
  const Reduction how = reduction("reduce_scatter_tensor", argument, inputs[0], opts.reduceOp);
  Call call(Collective::kReduceScatter, how.dtype, type, "ringdist:reduce_scatter_tensor",
            Call::manner(opts));
  call.inputs = inputs;
  call.outputs = outputs;
  call.request.reduce_op = how.op;
  for (const at::Tensor& input : inputs) {
    call.memory.push_back(
        call.staging.use(input, /*reads=*/true, /*writes=*/false, /*apart=*/!!how.factor));
    how.prepare(call.memory.back());
  }
  const Tensors from = call.memory;
  append_by_rank(call.request.input, from, getSize());
  const std::vector<bool> shared = overlapping(outputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    call.write(outputs[i], /*apart=*/shared[i] || share_memory(outputs[i], from));
  call.request.count = call.request.output.count();
  return call;
}

ProcessGroupRing::WorkPtr ProcessGroupRing::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  return run([&] {
    check_reduce_scatter("", output, input);
    Call call =
        reduce_scatter_call({output}, {input}, "input", c10d::OpType::_REDUCE_SCATTER_BASE, opts);
    apply_option(call);
    return call;
  });
}

}  // namespace ringdist
