#include "torch/ops/data_movement.h"

#include <string>
#include <string_view>

#include "torch/base/errors.h"
#include "torch/ops/arguments.h"

namespace ringdist {
namespace {

// Checks an output that holds the inputs of all ranks.
Error check_whole(std::string_view op, const std::string& suffix, const at::Tensor& output,
                  const at::Tensor& input, int size) {
  if (Error error = check_same_dtype(op, "output" + suffix, output, input)) return error;
  if (output.numel() == input.numel() * size) return {};
  return invalid_argument(op, "invalid tensor size: output" + suffix + " is " + describe(output) +
                                  ", but the input is " + describe(input) + " on " +
                                  std::to_string(size) + " ranks, so it must have " +
                                  std::to_string(input.numel() * size) + " elements");
}

void check_allgather_into(RankAndSize place, const std::string& suffix, const at::Tensor& output,
                          const at::Tensor& input) {
  constexpr std::string_view kOp = "all_gather_into_tensor";
  throw_if(check_tensor(kOp, "input" + suffix, input, /*written=*/false));
  throw_if(check_tensor(kOp, "output" + suffix, output, /*written=*/true));
  value_of(to_dtype(kOp, "input" + suffix, input));
  throw_if(check_whole(kOp, suffix, output, input, place.size));
}

// Makes an allgather of pairs of tensors of one dtype, which have been checked. `type`
// distinguishes a single pair from a list. Part r of the output has the data that rank r gives for
// all pairs.
Call allgather_into_pairs(RankAndSize place, const Tensors& outputs, const Tensors& inputs,
                          c10d::OpType type, const c10d::AllgatherOptions& opts) {
  const DType dtype = value_of(to_dtype("all_gather_into_tensor", "input", inputs[0]));
  Call call(Collective::kAllgather, dtype, type, "ringdist:all_gather_into_tensor",
            Call::wait_options(opts));
  call.inputs = inputs;
  call.outputs = outputs;
  const std::vector<bool> shared = overlapping(outputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    call.memory.push_back(
        call.staging.use(outputs[i], /*reads=*/false, /*writes=*/true, /*apart=*/shared[i]));
  const Tensors to = call.memory;
  append_by_rank(call.request.output, to, place.size);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    // An input at its rank's part of the output is in place. Any other overlap needs a copy.
    const auto* part = static_cast<const std::byte*>(to[i].const_data_ptr()) +
                       place.rank * input.numel() * static_cast<int64_t>(input.element_size());
    const bool in_place = input.is_contiguous() && input.const_data_ptr() == part;
    call.read(input, /*apart=*/!in_place && share_memory(input, to));
  }
  call.request.count = call.request.input.count();
  return call;
}

void check_allgather_lists(RankAndSize place, const TensorLists& outputs, const Tensors& inputs) {
  constexpr std::string_view kOp = "all_gather_coalesced";
  throw_if(check_list(kOp, "inputs", inputs, /*written=*/false));
  throw_if(check_same_length(kOp, "output lists", outputs.size(), "ranks in the group",
                             static_cast<size_t>(place.size)));
  for (size_t r = 0; r < outputs.size(); ++r) {
    const std::string list = "outputs" + index(r);
    throw_if(check_same_length(kOp, list, outputs[r].size(), "the inputs", inputs.size()));
    throw_if(check_list(kOp, list, outputs[r], /*written=*/true));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = list + index(i);
      const std::string like = "inputs" + index(i);
      throw_if(check_same_dtype(kOp, name, outputs[r][i], inputs[i]));
      throw_if(check_same_size(kOp, name, outputs[r][i], like, inputs[i]));
    }
  }
}

// Makes a checked gather, without its buffers.
Call start_gather(RankAndSize place, const at::Tensor& input, const c10d::GatherOptions& opts) {
  const DType dtype = value_of(to_dtype("gather", "input", input));
  throw_if(check_root("gather", opts.rootRank, place.size));
  Call call(Collective::kGather, dtype, c10d::OpType::GATHER, "ringdist:gather",
            Call::wait_options(opts));
  call.inputs = {input};
  call.request.root = static_cast<int>(opts.rootRank);
  call.request.count = input.numel();
  return call;
}

// The lists that a gather writes or a scatter reads at its root.
struct RootLists {
  std::string_view op;
  std::string argument;
  std::string other;  // name of the tensor that every rank has, for messages
  bool written;
};

// Checks that the root gives one list with a tensor like `own` for each rank, and that others give
// none.
void check_root_lists(RankAndSize place, const RootLists& what, const TensorLists& lists,
                      const at::Tensor& own, bool is_root) {
  const auto& [op, argument, other, written] = what;
  if (!is_root) {
    if (lists.empty()) return;
    throw_error(invalid_argument(op, "requires empty " + argument + " on non-root, " +
                                         std::to_string(lists.size()) + " lists given"));
  }
  throw_if(check_rank_lists(op, argument, lists, place.size));
  throw_if(check_rank_list(op, argument, lists[0], own, place.size, written));
  for (size_t i = 0; i < lists[0].size(); ++i)
    throw_if(check_same_size(op, argument + index(i), lists[0][i], other, own));
}

// Makes a send or a receive.
Call message(std::string_view op, c10d::OpType type, const char* title, const Tensors& tensors,
             Envelope envelope) {
  throw_if(check_single(op, "tensor", tensors, /*written=*/!envelope.sends));
  const DType dtype = value_of(to_dtype(op, "tensor", tensors[0]));
  if (envelope.tag < 0)
    throw_error(invalid_argument(
        op, "invalid tag: " + std::to_string(envelope.tag) + "; it must be at least 0"));
  // Asynchronous, because callers usually start several before they wait for one.
  Call call(Collective::kPointToPoint, dtype, type, title, {c10d::kUnsetTimeout, /*async=*/true});
  call.inputs = call.outputs = tensors;
  call.request.envelope = envelope;
  call.request.count = tensors[0].numel();
  if (envelope.sends)
    call.read(tensors[0]);
  else
    call.write(tensors[0]);
  return call;
}

Error check_peer(RankAndSize place, std::string_view op, std::string_view what, int peer) {
  if (peer >= 0 && peer < place.size) return {};
  return invalid_argument(op, "invalid " + std::string(what) + " rank: " + std::to_string(peer) +
                                  "; it must be in [0, " + std::to_string(place.size) + ")");
}

}  // namespace

Call broadcast_call(RankAndSize place, const Tensors& tensors, const c10d::BroadcastOptions& opts) {
  throw_if(check_single("broadcast", "tensor", tensors, /*written=*/true));
  const DType dtype = value_of(to_dtype("broadcast", "tensor", tensors[0]));
  throw_if(check_root("broadcast", opts.rootRank, place.size));
  throw_if(check_root_tensor("broadcast", opts.rootTensor));
  Call call(Collective::kBroadcast, dtype, c10d::OpType::BROADCAST, "ringdist:broadcast",
            Call::wait_options(opts));
  call.inputs = call.outputs = tensors;
  call.request.root = static_cast<int>(opts.rootRank);
  call.request.count = tensors[0].numel();
  const bool is_root = opts.rootRank == place.rank;
  call.add(call.request.output, call.staging.use(tensors[0], is_root, !is_root));
  return call;
}

Call allgather_call(RankAndSize place, const TensorLists& outputs, const Tensors& inputs,
                    const c10d::AllgatherOptions& opts) {
  constexpr std::string_view kOp = "all_gather";
  throw_if(check_single(kOp, "input", inputs, /*written=*/false));
  const at::Tensor& input = inputs[0];
  const DType dtype = value_of(to_dtype(kOp, "input", input));
  throw_if(check_rank_lists(kOp, "output", outputs, place.size));
  const Tensors& list = outputs[0];
  throw_if(check_rank_list(kOp, "output", list, input, place.size, /*written=*/true));
  const std::string own = "output" + index(static_cast<size_t>(place.rank));
  throw_if(check_same_size(kOp, own, list[place.rank], "the input", input));
  Call call(Collective::kAllgather, dtype, c10d::OpType::ALLGATHER, "ringdist:all_gather",
            Call::wait_options(opts));
  call.inputs = inputs;
  call.outputs = list;
  call.request.output_parts = sizes_of(list);
  call.request.count = normalize_parts(call.request.output_parts);
  call.write_outputs();
  call.read(input, /*apart=*/share_memory(input, list));
  return call;
}

std::vector<Call> allgather_calls(RankAndSize place, const TensorLists& outputs,
                                  const Tensors& inputs, const c10d::AllgatherOptions& opts) {
  constexpr std::string_view kOp = "all_gather_coalesced";
  check_allgather_lists(place, outputs, inputs);
  std::vector<Call> calls;
  for (const auto& group : by_dtype(inputs)) {
    const DType dtype = value_of(to_dtype(kOp, "inputs" + index(group[0]), inputs[group[0]]));
    Call& call =
        calls.emplace_back(Collective::kAllgather, dtype, c10d::OpType::ALLGATHER_COALESCED,
                           "ringdist:all_gather", Call::wait_options(opts));
    call.inputs = pick(inputs, group);
    for (const Tensors& list : outputs)
      for (const size_t i : group) call.outputs.push_back(list[i]);
    call.write_outputs();
    for (const at::Tensor& input : call.inputs)
      call.read(input, /*apart=*/share_memory(input, call.outputs));
    call.request.count = call.request.input.count();
  }
  return calls;
}

Call allgather_into_tensor_call(RankAndSize place, const at::Tensor& output,
                                const at::Tensor& input, const c10d::AllgatherOptions& opts) {
  check_allgather_into(place, "", output, input);
  return allgather_into_pairs(place, {output}, {input}, c10d::OpType::_ALLGATHER_BASE, opts);
}

std::vector<Call> allgather_into_tensor_calls(RankAndSize place, const Tensors& outputs,
                                              const Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
  constexpr std::string_view kOp = "all_gather_into_tensor";
  throw_if(check_list(kOp, "inputs", inputs, /*written=*/false));
  throw_if(check_same_length(kOp, "outputs", outputs.size(), "the inputs", inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i)
    check_allgather_into(place, index(i), outputs[i], inputs[i]);
  std::vector<Call> calls;
  for (const auto& group : by_dtype(inputs))
    calls.push_back(allgather_into_pairs(place, pick(outputs, group), pick(inputs, group),
                                         c10d::OpType::ALLGATHER_COALESCED, opts));
  return calls;
}

Call gather_call(RankAndSize place, const TensorLists& outputs, const Tensors& inputs,
                 const c10d::GatherOptions& opts) {
  throw_if(check_single("gather", "input", inputs, /*written=*/false));
  const at::Tensor& input = inputs[0];
  Call call = start_gather(place, input, opts);
  const bool is_root = opts.rootRank == place.rank;
  check_root_lists(place, {"gather", "output", "the input", /*written=*/true}, outputs, input,
                   is_root);
  if (is_root) {
    call.outputs = outputs[0];
    call.write_outputs();
  }
  call.read(input, /*apart=*/share_memory(input, call.outputs));
  return call;
}

Call gather_into_tensor_call(RankAndSize place, const at::Tensor& output, const at::Tensor& input,
                             const c10d::GatherOptions& opts) {
  throw_if(check_tensor("gather", "input", input, /*written=*/false));
  Call call = start_gather(place, input, opts);
  if (opts.rootRank == place.rank) {
    throw_if(check_tensor("gather", "output", output, /*written=*/true));
    throw_if(check_whole("gather", "", output, input, place.size));
    call.outputs = {output};
    call.memory = {call.staging.use(output, /*reads=*/false, /*writes=*/true, /*apart=*/false)};
    append_by_rank(call.request.output, call.memory, place.size);
  }
  call.read(input, /*apart=*/share_memory(input, call.outputs));
  return call;
}

Call scatter_call(RankAndSize place, const Tensors& outputs, const TensorLists& inputs,
                  const c10d::ScatterOptions& opts) {
  throw_if(check_single("scatter", "output", outputs, /*written=*/true));
  const at::Tensor& output = outputs[0];
  const DType dtype = value_of(to_dtype("scatter", "output", output));
  throw_if(check_root("scatter", opts.rootRank, place.size));
  const bool is_root = opts.rootRank == place.rank;
  Call call(Collective::kScatter, dtype, c10d::OpType::SCATTER, "ringdist:scatter",
            Call::wait_options(opts));
  call.outputs = outputs;
  call.request.root = static_cast<int>(opts.rootRank);
  call.request.count = output.numel();
  check_root_lists(place, {"scatter", "input", "the output", /*written=*/false}, inputs, output,
                   is_root);
  if (is_root) {
    call.inputs = inputs[0];
    for (const at::Tensor& input : call.inputs) call.read(input);
  }
  call.write(output, /*apart=*/share_memory(output, call.inputs));
  return call;
}

Call send_call(RankAndSize place, const Tensors& tensors, int to, int tag) {
  throw_if(check_peer(place, "send", "destination", to));
  return message("send", c10d::OpType::SEND, "ringdist:send", tensors, {to, tag, /*sends=*/true});
}

Call recv_call(RankAndSize place, const Tensors& tensors, int from, int tag) {
  throw_if(check_peer(place, "recv", "source", from));
  return message("recv", c10d::OpType::RECV, "ringdist:recv", tensors,
                 {from, tag, /*sends=*/false});
}

Call recv_any_call(const Tensors& tensors, int tag) {
  return message("recv", c10d::OpType::RECVANYSOURCE, "ringdist:recvAnySource", tensors,
                 {Envelope::kAnySource, tag, /*sends=*/false});
}

}  // namespace ringdist
