#include "torch/ops/reduce.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "torch/base/errors.h"
#include "torch/base/tensors.h"
#include "torch/ops/arguments.h"

namespace ringdist {

// Reduction of a call, checked against its tensors.
struct Reduction {
  // Throws for a reduction that `tensor`, named `argument`, cannot have.
  static Reduction of(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                      const c10d::ReduceOp& given);

  // Multiplies by the factor, if there is one. Then `ours` must be a copy.
  void prepare(const at::Tensor& ours) const {
    if (factor) factor.multiply(ours);
  }

  ReduceOp op;
  DType dtype;
  PremulFactor factor;
};

namespace {

void check_reduce_scatter(RankAndSize place, const std::string& suffix, const at::Tensor& output,
                          const at::Tensor& input) {
  constexpr std::string_view kOp = "reduce_scatter_tensor";
  throw_if(check_tensor(kOp, "input" + suffix, input, /*written=*/false));
  throw_if(check_tensor(kOp, "output" + suffix, output, /*written=*/true));
  throw_if(check_same_dtype(kOp, "output" + suffix, output, input));
  if (input.numel() != output.numel() * place.size)
    throw_error(
        invalid_argument(kOp, "invalid tensor size: input" + suffix + " is " + describe(input) +
                                  ", but the output is " + describe(output) + " on " +
                                  std::to_string(place.size) + " ranks, so it must have " +
                                  std::to_string(output.numel() * place.size) + " elements"));
}

// Makes a reduce-scatter of pairs of tensors of one dtype, which have been checked. `type`
// distinguishes a single pair from a list. Part r of the input has the data that all pairs have for
// rank r.
Call reduce_scatter_pairs(RankAndSize place, const Tensors& outputs, const Tensors& inputs,
                          const std::string& argument, c10d::OpType type,
                          const c10d::ReduceScatterOptions& opts) {
  const Reduction how = Reduction::of("reduce_scatter_tensor", argument, inputs[0], opts.reduceOp);
  Call call(Collective::kReduceScatter, how.dtype, type, "ringdist:reduce_scatter_tensor",
            Call::wait_options(opts));
  call.inputs = inputs;
  call.outputs = outputs;
  call.request.reduce_op = how.op;
  for (const at::Tensor& input : inputs) {
    call.memory.push_back(
        call.staging.use(input, /*reads=*/true, /*writes=*/false, /*apart=*/!!how.factor));
    how.prepare(call.memory.back());
  }
  const Tensors from = call.memory;
  append_by_rank(call.request.input, from, place.size);
  const std::vector<bool> shared = overlapping(outputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    call.write(outputs[i], /*apart=*/shared[i] || share_memory(outputs[i], from));
  call.request.count = call.request.output.count();
  return call;
}

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

// Checks the dtype, in which ATen adds up the entries.
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

Call allreduce_list_call(const Tensors& tensors, const std::string& argument,
                         const c10d::AllreduceOptions& opts) {
  const bool one = tensors.size() == 1;
  const Reduction how = Reduction::of("all_reduce", argument, tensors[0], opts.reduceOp);
  Call call(Collective::kAllreduce, how.dtype,
            one ? c10d::OpType::ALLREDUCE : c10d::OpType::ALLREDUCE_COALESCED,
            "ringdist:all_reduce", Call::wait_options(opts));
  call.inputs = call.outputs = tensors;
  call.request.reduce_op = how.op;
  const std::vector<bool> shared = overlapping(tensors);
  for (size_t i = 0; i < tensors.size(); ++i)
    how.prepare(call.update(tensors[i], /*apart=*/shared[i] || how.factor));
  call.request.count = call.request.output.count();
  return call;
}

Call allreduce_call(const Tensors& tensors, const c10d::AllreduceOptions& opts) {
  throw_if(check_single("all_reduce", "tensor", tensors, /*written=*/true));
  return allreduce_list_call(tensors, "tensor", opts);
}

Call allreduce_coalesced_call(const Tensors& tensors, const c10d::AllreduceOptions& opts) {
  throw_if(check_list("all_reduce", "tensors", tensors, /*written=*/true));
  for (size_t i = 1; i < tensors.size(); ++i)
    if (tensors[i].scalar_type() != tensors[0].scalar_type())
      throw_error(invalid_argument("all_reduce", "tensors must all have the same type: tensors" +
                                                     index(i) + " is " + describe(tensors[i]) +
                                                     ", tensors[0] is " + describe(tensors[0])));
  return allreduce_list_call(tensors, "tensors[0]", opts);
}

Call reduce_call(RankAndSize place, const Tensors& tensors, const c10d::ReduceOptions& opts) {
  throw_if(check_single("reduce", "tensor", tensors, /*written=*/true));
  throw_if(check_root("reduce", opts.rootRank, place.size));
  throw_if(check_root_tensor("reduce", opts.rootTensor));
  const Reduction how = Reduction::of("reduce", "tensor", tensors[0], opts.reduceOp);
  Call call(Collective::kReduce, how.dtype, c10d::OpType::REDUCE, "ringdist:reduce",
            Call::wait_options(opts));
  call.inputs = call.outputs = tensors;
  call.request.reduce_op = how.op;
  call.request.root = static_cast<int>(opts.rootRank);
  const bool is_root = opts.rootRank == place.rank;
  const at::Tensor ours =
      call.staging.use(tensors[0], /*reads=*/true, /*writes=*/is_root, /*apart=*/!!how.factor);
  how.prepare(call.add(call.request.output, ours));
  call.request.count = ours.numel();
  return call;
}

Call reduce_scatter_call(RankAndSize place, const Tensors& outputs, const TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) {
  constexpr std::string_view kOp = "reduce_scatter";
  throw_if(check_single(kOp, "output", outputs, /*written=*/true));
  throw_if(check_rank_lists(kOp, "input", inputs, place.size));
  const at::Tensor& output = outputs[0];
  const Tensors& list = inputs[0];
  throw_if(check_rank_list(kOp, "input", list, output, place.size, /*written=*/false));
  const std::string own = "input[" + std::to_string(place.rank) + "]";
  throw_if(check_same_size(kOp, "output", output, own, list[place.rank]));
  const Reduction how = Reduction::of(kOp, "output", output, opts.reduceOp);
  Call call(Collective::kReduceScatter, how.dtype, c10d::OpType::REDUCE_SCATTER,
            "ringdist:reduce_scatter", Call::wait_options(opts));
  call.inputs = list;
  call.outputs = outputs;
  call.request.reduce_op = how.op;
  call.request.input_parts = sizes_of(list);
  call.request.count = normalize_parts(call.request.input_parts);
  for (const at::Tensor& input : list) how.prepare(call.read(input, /*apart=*/!!how.factor));
  call.write(output, /*apart=*/share_memory(output, call.memory));
  return call;
}

Call reduce_scatter_tensor_call(RankAndSize place, const at::Tensor& output,
                                const at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  check_reduce_scatter(place, "", output, input);
  return reduce_scatter_pairs(place, {output}, {input}, "input", c10d::OpType::_REDUCE_SCATTER_BASE,
                              opts);
}

std::vector<Call> reduce_scatter_tensor_calls(RankAndSize place, const Tensors& outputs,
                                              const Tensors& inputs,
                                              const c10d::ReduceScatterOptions& opts) {
  constexpr std::string_view kOp = "reduce_scatter_tensor";
  throw_if(check_list(kOp, "inputs", inputs, /*written=*/false));
  throw_if(check_same_length(kOp, "outputs", outputs.size(), "the inputs", inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i)
    check_reduce_scatter(place, index(i), outputs[i], inputs[i]);
  std::vector<Call> calls;
  for (const auto& group : by_dtype(inputs))
    calls.push_back(reduce_scatter_pairs(place, pick(outputs, group), pick(inputs, group),
                                         "inputs" + index(group[0]),
                                         reduce_scatter_coalesced<c10d::OpType>(), opts));
  return calls;
}

Reduction Reduction::of(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                        const c10d::ReduceOp& given) {
  const ReduceOp reduce_op = value_of(to_reduce_op(op, given));
  const DType dtype = value_of(to_dtype(op, argument, tensor, reduce_op));
  return {reduce_op, dtype, value_of(PremulFactor::of(op, given, tensor))};
}

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
