// Operations between one rank and all, and from all to all alike, that only move data.
#include "torch/arguments.h"
#include "torch/backend.h"
#include "torch/errors.h"

namespace ringdist {
namespace {

DType moved_dtype(std::string_view op, const std::string& argument, const at::Tensor& tensor) {
  auto dtype = to_dtype(op, argument, tensor);
  throw_if(dtype.error());
  return dtype.value();
}

// An output that holds the inputs of all ranks.
Error check_whole(std::string_view op, const std::string& suffix, const at::Tensor& output,
                  const at::Tensor& input, int size) {
  if (Error error = check_same_dtype(op, "output" + suffix, output, input)) return error;
  if (output.numel() == input.numel() * size) return {};
  return invalid_argument(op, "invalid tensor size: output" + suffix + " is " + describe(output) +
                                  ", but the input is " + describe(input) + " on " +
                                  std::to_string(size) + " ranks, so it must have " +
                                  std::to_string(input.numel() * size) + " elements");
}

}  // namespace

Call ProcessGroupRing::broadcast_call(const Tensors& tensors, const c10d::BroadcastOptions& opts) {
  throw_if(check_single("broadcast", "tensor", tensors, /*written=*/true));
  const DType dtype = moved_dtype("broadcast", "tensor", tensors[0]);
  throw_if(check_root("broadcast", opts.rootRank, getSize()));
  throw_if(check_root_tensor("broadcast", opts.rootTensor));
  Call call(Collective::kBroadcast, dtype, c10d::OpType::BROADCAST, "ringdist:broadcast",
            Call::manner(opts));
  call.inputs = call.outputs = tensors;
  call.request.root = static_cast<int>(opts.rootRank);
  call.request.count = tensors[0].numel();
  const bool is_root = opts.rootRank == getRank();
  call.add(call.request.output, call.staging.use(tensors[0], is_root, !is_root));
  return call;
}

ProcessGroupRing::WorkPtr ProcessGroupRing::broadcast(Tensors& tensors,
                                                      const c10d::BroadcastOptions& opts) {
  return run([&] { return broadcast_call(tensors, opts); });
}

Call ProcessGroupRing::allgather_call(const TensorLists& outputs, const Tensors& inputs,
                                      const c10d::AllgatherOptions& opts) {
  constexpr std::string_view kOp = "all_gather";
  throw_if(check_single(kOp, "input", inputs, /*written=*/false));
  const at::Tensor& input = inputs[0];
  const DType dtype = moved_dtype(kOp, "input", input);
  throw_if(check_rank_lists(kOp, "output", outputs, getSize()));
  const Tensors& list = outputs[0];
  throw_if(check_rank_list(kOp, "output", list, input, getSize(), /*written=*/true));
  const std::string own = "output[" + std::to_string(getRank()) + "]";
  throw_if(check_same_size(kOp, own, list[getRank()], "the input", input));
  Call call(Collective::kAllgather, dtype, c10d::OpType::ALLGATHER, "ringdist:all_gather",
            Call::manner(opts));
  call.inputs = inputs;
  call.outputs = list;
  call.request.output_parts = sizes_of(list);
  call.request.count = settle_parts(call.request.output_parts);
  const std::vector<bool> shared = overlapping(list);
  for (size_t i = 0; i < list.size(); ++i) call.write(list[i], /*apart=*/shared[i]);
  call.read(input, /*apart=*/share_memory(input, list));
  return call;
}

ProcessGroupRing::WorkPtr ProcessGroupRing::allgather(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  return run([&] { return allgather_call(outputs, inputs, opts); });
}

void ProcessGroupRing::check_allgather_into(const std::string& suffix, const at::Tensor& output,
                                            const at::Tensor& input) const {
  constexpr std::string_view kOp = "all_gather_into_tensor";
  throw_if(check_tensor(kOp, "input" + suffix, input, /*written=*/false));
  throw_if(check_tensor(kOp, "output" + suffix, output, /*written=*/true));
  moved_dtype(kOp, "input" + suffix, input);
  throw_if(check_whole(kOp, suffix, output, input, getSize()));
}

// Rank r's part of the output is what all tensors have of r, one after the other.
Call ProcessGroupRing::allgather_into_call(const Tensors& outputs, const Tensors& inputs,
                                           c10d::OpType type, const c10d::AllgatherOptions& opts) {
  const DType dtype = moved_dtype("all_gather_into_tensor", "input", inputs[0]);
  Call call(Collective::kAllgather, dtype, type, "ringdist:all_gather_into_tensor",
            Call::manner(opts));
  call.inputs = inputs;
  call.outputs = outputs;
  const std::vector<bool> shared = overlapping(outputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    call.memory.push_back(
        call.staging.use(outputs[i], /*reads=*/false, /*writes=*/true, /*apart=*/shared[i]));
  const Tensors to = call.memory;
  append_by_rank(call.request.output, to, getSize());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    // In place is the input at its rank's part of the output; any other overlap needs a copy.
    const auto* part = static_cast<const std::byte*>(to[i].const_data_ptr()) +
                       getRank() * input.numel() * static_cast<int64_t>(input.element_size());
    const bool in_place = input.is_contiguous() && input.const_data_ptr() == part;
    call.read(input, /*apart=*/!in_place && share_memory(input, to));
  }
  call.request.count = call.request.input.count();
  return call;
}

ProcessGroupRing::WorkPtr ProcessGroupRing::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& opts) {
  return run([&] {
    check_allgather_into("", output, input);
    return allgather_into_call({output}, {input}, c10d::OpType::_ALLGATHER_BASE, opts);
  });
}

Call ProcessGroupRing::start_gather(const at::Tensor& input,
                                    const c10d::GatherOptions& opts) const {
  const DType dtype = moved_dtype("gather", "input", input);
  throw_if(check_root("gather", opts.rootRank, getSize()));
  Call call(Collective::kGather, dtype, c10d::OpType::GATHER, "ringdist:gather",
            Call::manner(opts));
  call.inputs = {input};
  call.request.root = static_cast<int>(opts.rootRank);
  call.request.count = input.numel();
  return call;
}

Call ProcessGroupRing::gather_call(const TensorLists& outputs, const Tensors& inputs,
                                   const c10d::GatherOptions& opts) {
  throw_if(check_single("gather", "input", inputs, /*written=*/false));
  const at::Tensor& input = inputs[0];
  Call call = start_gather(input, opts);
  const bool is_root = opts.rootRank == getRank();
  if (!is_root && !outputs.empty())
    throw_error(invalid_argument("gather", "requires empty output on non-root, " +
                                               std::to_string(outputs.size()) + " lists given"));
  if (is_root) {
    throw_if(check_rank_lists("gather", "output", outputs, getSize()));
    throw_if(check_rank_list("gather", "output", outputs[0], input, getSize(), /*written=*/true));
    call.outputs = outputs[0];
    for (size_t i = 0; i < call.outputs.size(); ++i)
      throw_if(check_same_size("gather", "output[" + std::to_string(i) + "]", call.outputs[i],
                               "the input", input));
    const std::vector<bool> shared = overlapping(call.outputs);
    for (size_t i = 0; i < call.outputs.size(); ++i)
      call.write(call.outputs[i], /*apart=*/shared[i]);
  }
  call.read(input, /*apart=*/share_memory(input, call.outputs));
  return call;
}

ProcessGroupRing::WorkPtr ProcessGroupRing::gather(TensorLists& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& opts) {
  return run([&] { return gather_call(outputs, inputs, opts); });
}

#if RINGDIST_TORCH_HAS_GATHER_INTO_TENSOR
ProcessGroupRing::WorkPtr ProcessGroupRing::gather_into_tensor(at::Tensor& output,
                                                               at::Tensor& input,
                                                               const c10d::GatherOptions& opts) {
  return run([&] {
    throw_if(check_tensor("gather", "input", input, /*written=*/false));
    Call call = start_gather(input, opts);
    if (opts.rootRank == getRank()) {
      throw_if(check_tensor("gather", "output", output, /*written=*/true));
      throw_if(check_whole("gather", "", output, input, getSize()));
      call.outputs = {output};
      call.memory = {call.staging.use(output, /*reads=*/false, /*writes=*/true, /*apart=*/false)};
      append_by_rank(call.request.output, call.memory, getSize());
    }
    call.read(input, /*apart=*/share_memory(input, call.outputs));
    return call;
  });
}
#endif

Call ProcessGroupRing::scatter_call(const Tensors& outputs, const TensorLists& inputs,
                                    const c10d::ScatterOptions& opts) {
  throw_if(check_single("scatter", "output", outputs, /*written=*/true));
  const at::Tensor& output = outputs[0];
  const DType dtype = moved_dtype("scatter", "output", output);
  throw_if(check_root("scatter", opts.rootRank, getSize()));
  const bool is_root = opts.rootRank == getRank();
  Call call(Collective::kScatter, dtype, c10d::OpType::SCATTER, "ringdist:scatter",
            Call::manner(opts));
  call.outputs = outputs;
  call.request.root = static_cast<int>(opts.rootRank);
  call.request.count = output.numel();
  if (!is_root && !inputs.empty())
    throw_error(invalid_argument("scatter", "requires empty input on non-root, " +
                                                std::to_string(inputs.size()) + " lists given"));
  if (is_root) {
    throw_if(check_rank_lists("scatter", "input", inputs, getSize()));
    throw_if(check_rank_list("scatter", "input", inputs[0], output, getSize(), /*written=*/false));
    call.inputs = inputs[0];
    for (size_t i = 0; i < call.inputs.size(); ++i)
      throw_if(check_same_size("scatter", "input[" + std::to_string(i) + "]", call.inputs[i],
                               "the output", output));
    for (const at::Tensor& input : call.inputs) call.read(input);
  }
  call.write(output, /*apart=*/share_memory(output, call.inputs));
  return call;
}

ProcessGroupRing::WorkPtr ProcessGroupRing::scatter(Tensors& outputs, TensorLists& inputs,
                                                    const c10d::ScatterOptions& opts) {
  return run([&] { return scatter_call(outputs, inputs, opts); });
}

}  // namespace ringdist
