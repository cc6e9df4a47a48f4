// Operations in which each rank has something else for each.
#include <numeric>

#include "torch/arguments.h"
#include "torch/backend.h"
#include "torch/errors.h"

namespace ringdist {
namespace {

constexpr std::string_view kSingle = "all_to_all_single";
constexpr std::string_view kList = "all_to_all";

// Elements per rank: rows of dimension 0 as `splits` has them, or as many for each.
std::vector<int64_t> parts_of(const std::string& argument, const at::Tensor& tensor,
                              const std::vector<int64_t>& splits, int size) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  const std::string given = argument + " is " + describe(tensor);
  if (splits.empty()) {
    if (rows % size != 0)
      throw_error(invalid_argument(
          kSingle, "Tensor's dim 0 does not divide equally across group size: " + given +
                       ", the group has " + std::to_string(size) + " ranks"));
    return std::vector<int64_t>(static_cast<size_t>(size), rows / size * row);
  }
  if (splits.size() != static_cast<size_t>(size))
    throw_error(invalid_argument(kSingle, "Number of tensor splits not equal to group size: " +
                                              std::to_string(splits.size()) + " splits for the " +
                                              argument + ", " + std::to_string(size) + " ranks"));
  const bool negative = std::ranges::any_of(splits, [](int64_t split) { return split < 0; });
  if (negative || std::accumulate(splits.begin(), splits.end(), int64_t{0}) != rows)
    throw_error(invalid_argument(
        kSingle, "Split sizes doesn't match total dim 0 size: " + given + ", its splits are " +
                     c10::str(at::IntArrayRef(splits)) + "; they must be at least 0"));
  std::vector<int64_t> out;
  for (const int64_t split : splits) out.push_back(split * row);
  return out;
}

// What a rank has for itself.
void check_own_part(std::string_view op, int64_t in, int64_t out, int rank) {
  if (in == out) return;
  throw_error(invalid_argument(op, "invalid tensor size: rank " + std::to_string(rank) + " has " +
                                       std::to_string(in) + " elements of input for itself, but " +
                                       std::to_string(out) + " of output"));
}

}  // namespace

Call ProcessGroupRing::alltoall_call(const at::Tensor& output, const at::Tensor& input,
                                     const std::vector<int64_t>& output_splits,
                                     const std::vector<int64_t>& input_splits,
                                     const c10d::AllToAllOptions& opts) {
  throw_if(check_tensor(kSingle, "input", input, /*written=*/false));
  throw_if(check_tensor(kSingle, "output", output, /*written=*/true));
  throw_if(check_same_dtype(kSingle, "output", output, input));
  auto dtype = to_dtype(kSingle, "input", input);
  throw_if(dtype.error());
  Call call(Collective::kAlltoall, dtype.value(), c10d::OpType::ALLTOALL_BASE,
            "ringdist:all_to_all", Call::manner(opts));
  call.inputs = {input};
  call.outputs = {output};
  call.request.input_parts = parts_of("input", input, input_splits, getSize());
  call.request.output_parts = parts_of("output", output, output_splits, getSize());
  check_own_part(kSingle, call.request.input_parts[getRank()], call.request.output_parts[getRank()],
                 getRank());
  const at::Tensor to = call.write(output);
  call.read(input, /*apart=*/share_memory(input, to));
  return call;
}

ProcessGroupRing::WorkPtr ProcessGroupRing::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<int64_t>& output_splits,
                                                          std::vector<int64_t>& input_splits,
                                                          const c10d::AllToAllOptions& opts) {
  return run([&] { return alltoall_call(output, input, output_splits, input_splits, opts); });
}

Call ProcessGroupRing::alltoall_list_call(const Tensors& outputs, const Tensors& inputs,
                                          const c10d::AllToAllOptions& opts) {
  throw_if(check_list(kList, "input", inputs, /*written=*/false));
  throw_if(check_rank_list(kList, "input", inputs, inputs[0], getSize(), /*written=*/false));
  throw_if(check_rank_list(kList, "output", outputs, inputs[0], getSize(), /*written=*/true));
  auto dtype = to_dtype(kList, "input[0]", inputs[0]);
  throw_if(dtype.error());
  check_own_part(kList, inputs[getRank()].numel(), outputs[getRank()].numel(), getRank());
  Call call(Collective::kAlltoall, dtype.value(), c10d::OpType::ALLTOALL, "ringdist:all_to_all",
            Call::manner(opts));
  call.inputs = inputs;
  call.outputs = outputs;
  call.request.input_parts = sizes_of(inputs);
  call.request.output_parts = sizes_of(outputs);
  const std::vector<bool> shared = overlapping(outputs);
  for (size_t i = 0; i < outputs.size(); ++i) call.write(outputs[i], /*apart=*/shared[i]);
  for (const at::Tensor& input : inputs) call.read(input, share_memory(input, outputs));
  return call;
}

ProcessGroupRing::WorkPtr ProcessGroupRing::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllToAllOptions& opts) {
  return run([&] { return alltoall_list_call(outputs, inputs, opts); });
}

}  // namespace ringdist
