#include "torch/ops/all_to_all.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "torch/base/errors.h"
#include "torch/ops/arguments.h"

namespace ringdist {
namespace {

constexpr std::string_view kSingle = "all_to_all_single";
constexpr std::string_view kList = "all_to_all";

// Returns the elements per rank: the rows of dimension 0 given by `splits`, or equally many for
// each rank.
std::vector<int64_t> parts_of(const std::string& argument, const at::Tensor& tensor,
                              const std::vector<int64_t>& splits, int size) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  const auto given = [&] { return argument + " is " + describe(tensor); };
  if (splits.empty()) {
    if (rows % size != 0)
      throw_error(invalid_argument(
          kSingle, "Tensor's dim 0 does not divide equally across group size: " + given() +
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
        kSingle, "Split sizes doesn't match total dim 0 size: " + given() + ", its splits are " +
                     c10::str(at::IntArrayRef(splits)) + "; they must be at least 0"));
  std::vector<int64_t> out;
  for (const int64_t split : splits) out.push_back(split * row);
  return out;
}

// Checks the part that a rank has for itself.
void check_own_part(std::string_view op, int64_t in, int64_t out, int rank) {
  if (in == out) return;
  throw_error(invalid_argument(op, "invalid tensor size: rank " + std::to_string(rank) + " has " +
                                       std::to_string(in) + " elements of input for itself, but " +
                                       std::to_string(out) + " of output"));
}

// Sets the parts of a request. If they are all equal, sets only a count, so that such calls share
// one cached plan.
void set_parts(OpRequest& request, std::vector<int64_t> input, std::vector<int64_t> output) {
  const bool alike = std::ranges::all_of(input, [&](int64_t part) { return part == input[0]; });
  if (alike && input == output) {
    request.count = input[0];
    return;
  }
  request.input_parts = std::move(input);
  request.output_parts = std::move(output);
}

}  // namespace

Call alltoall_call(RankAndSize place, const at::Tensor& output, const at::Tensor& input,
                   const std::vector<int64_t>& output_splits,
                   const std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  throw_if(check_tensor(kSingle, "input", input, /*written=*/false));
  throw_if(check_tensor(kSingle, "output", output, /*written=*/true));
  throw_if(check_same_dtype(kSingle, "output", output, input));
  const DType dtype = value_of(to_dtype(kSingle, "input", input));
  Call call(Collective::kAlltoall, dtype, c10d::OpType::ALLTOALL_BASE, "ringdist:all_to_all",
            Call::wait_options(opts));
  call.inputs = {input};
  call.outputs = {output};
  std::vector<int64_t> from = parts_of("input", input, input_splits, place.size);
  std::vector<int64_t> to = parts_of("output", output, output_splits, place.size);
  check_own_part(kSingle, from[place.rank], to[place.rank], place.rank);
  set_parts(call.request, std::move(from), std::move(to));
  const at::Tensor written = call.write(output);
  call.read(input, /*apart=*/share_memory(input, written));
  return call;
}

Call alltoall_list_call(RankAndSize place, const Tensors& outputs, const Tensors& inputs,
                        const c10d::AllToAllOptions& opts) {
  throw_if(check_list(kList, "input", inputs, /*written=*/false));
  throw_if(check_rank_list(kList, "input", inputs, inputs[0], place.size, /*written=*/false));
  throw_if(check_rank_list(kList, "output", outputs, inputs[0], place.size, /*written=*/true));
  const DType dtype = value_of(to_dtype(kList, "input[0]", inputs[0]));
  check_own_part(kList, inputs[place.rank].numel(), outputs[place.rank].numel(), place.rank);
  Call call(Collective::kAlltoall, dtype, c10d::OpType::ALLTOALL, "ringdist:all_to_all",
            Call::wait_options(opts));
  call.inputs = inputs;
  call.outputs = outputs;
  set_parts(call.request, sizes_of(inputs), sizes_of(outputs));
  call.write_outputs();
  for (const at::Tensor& input : inputs) call.read(input, share_memory(input, outputs));
  return call;
}

}  // namespace ringdist
