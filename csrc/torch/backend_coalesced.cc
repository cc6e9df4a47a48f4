// Operations on lists of tensors, of any dtypes: one op per dtype, in which no tensor is copied
// together with others.
#include <algorithm>

#include "torch/arguments.h"
#include "torch/backend.h"
#include "torch/errors.h"

namespace ringdist {
namespace {

// torch 2.11 has no name for it.
template <typename OpType>
constexpr OpType reduce_scatter_coalesced() {
  if constexpr (requires { OpType::REDUCE_SCATTER_TENSOR_COALESCED; })
    return OpType::REDUCE_SCATTER_TENSOR_COALESCED;
  else
    return OpType::_REDUCE_SCATTER_BASE;
}

std::string index(size_t i) { return "[" + std::to_string(i) + "]"; }

// Indices of the tensors of each dtype; dtypes in the order in which they first come.
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

}  // namespace

ProcessGroupRing::WorkPtr ProcessGroupRing::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return run_all(c10d::OpType::ALLREDUCE_COALESCED, [&] {
    throw_if(check_list("all_reduce", "tensors", tensors, /*written=*/true));
    std::vector<Call> calls;
    for (const auto& group : by_dtype(tensors)) {
      calls.push_back(allreduce_call(pick(tensors, group), "tensors" + index(group[0]), opts));
      apply_option(calls.back());
    }
    return calls;
  });
}

ProcessGroupRing::WorkPtr ProcessGroupRing::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  constexpr std::string_view kOp = "all_gather_coalesced";
  return run_all(c10d::OpType::ALLGATHER_COALESCED, [&] {
    throw_if(check_list(kOp, "inputs", inputs, /*written=*/false));
    throw_if(check_same_length(kOp, "output lists", outputs.size(), "ranks in the group",
                               static_cast<size_t>(getSize())));
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
    std::vector<Call> calls;
    for (const auto& group : by_dtype(inputs)) {
      auto dtype = to_dtype(kOp, "inputs" + index(group[0]), inputs[group[0]]);
      throw_if(dtype.error());
      Call& call = calls.emplace_back(Collective::kAllgather, dtype.value(),
                                      c10d::OpType::ALLGATHER_COALESCED, "ringdist:all_gather",
                                      Call::manner(opts));
      call.inputs = pick(inputs, group);
      for (const Tensors& list : outputs)
        for (const size_t i : group) call.outputs.push_back(list[i]);
      const std::vector<bool> shared = overlapping(call.outputs);
      for (size_t i = 0; i < call.outputs.size(); ++i)
        call.write(call.outputs[i], /*apart=*/shared[i]);
      for (const at::Tensor& input : call.inputs)
        call.read(input, /*apart=*/share_memory(input, call.outputs));
      call.request.count = call.request.input.count();
    }
    return calls;
  });
}

ProcessGroupRing::WorkPtr ProcessGroupRing::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  constexpr std::string_view kOp = "all_gather_into_tensor";
  return run_all(c10d::OpType::ALLGATHER_COALESCED, [&] {
    throw_if(check_list(kOp, "inputs", inputs, /*written=*/false));
    throw_if(check_same_length(kOp, "outputs", outputs.size(), "the inputs", inputs.size()));
    for (size_t i = 0; i < inputs.size(); ++i)
      check_allgather_into(index(i), outputs[i], inputs[i]);
    std::vector<Call> calls;
    for (const auto& group : by_dtype(inputs))
      calls.push_back(allgather_into_call(pick(outputs, group), pick(inputs, group),
                                          c10d::OpType::ALLGATHER_COALESCED, opts));
    return calls;
  });
}

ProcessGroupRing::WorkPtr ProcessGroupRing::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  constexpr std::string_view kOp = "reduce_scatter_tensor";
  constexpr auto kType = reduce_scatter_coalesced<c10d::OpType>();
  return run_all(kType, [&] {
    throw_if(check_list(kOp, "inputs", inputs, /*written=*/false));
    throw_if(check_same_length(kOp, "outputs", outputs.size(), "the inputs", inputs.size()));
    for (size_t i = 0; i < inputs.size(); ++i)
      check_reduce_scatter(index(i), outputs[i], inputs[i]);
    std::vector<Call> calls;
    for (const auto& group : by_dtype(inputs)) {
      calls.push_back(reduce_scatter_call(pick(outputs, group), pick(inputs, group),
                                          "inputs" + index(group[0]), kType, opts));
      apply_option(calls.back());
    }
    return calls;
  });
}

}  // namespace ringdist
