#include "torch/named/named_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "torch/errors.h"
#include "torch/named/scale.h"
#include "torch/ops/arguments.h"
#include "torch/work/interrupts.h"

namespace ringdist {
namespace {

constexpr Call::Manner kManner{c10d::kUnsetTimeout, /*async=*/true};

// `free_rows`: ranks may differ in dimension 0.
std::vector<int64_t> shape_of(const at::Tensor& tensor, bool free_rows = false) {
  std::vector<int64_t> out = tensor.sizes().vec();
  if (free_rows) {
    if (out.empty()) out.push_back(1);
    out[0] = CallContent::kAny;
  }
  return out;
}

int64_t rows_of(const at::Tensor& tensor) { return tensor.dim() == 0 ? 1 : tensor.size(0); }

// Elements of a row; also where there is none.
int64_t row_length(const at::Tensor& tensor) {
  int64_t out = 1;
  for (int64_t dim = 1; dim < tensor.dim(); ++dim) out *= tensor.size(dim);
  return out;
}

at::Tensor with_rows(const at::Tensor& like, int64_t rows) {
  std::vector<int64_t> shape = like.sizes().vec();
  if (shape.empty()) shape.push_back(1);
  shape[0] = rows;
  return at::empty(shape, like.options().memory_format(at::MemoryFormat::Contiguous));
}

// A device's tensors are not taken yet.
void check_input(std::string_view op, const std::string& argument, const at::Tensor& tensor) {
  throw_if(check_tensor(op, argument, tensor, /*written=*/false));
  throw_if(check_on_cpu(op, argument, tensor));
}

CallContent content_of(Collective kind, DType dtype, const at::Tensor& tensor) {
  CallContent out;
  out.kind = kind;
  out.dtype = dtype;
  out.where = tensor.device().str();
  // Moved as bytes, but they are no others.
  if (dtype == DType::kBytes) out.where += std::string(", ") + c10::toString(tensor.scalar_type());
  return out;
}

// Once.
std::function<Result<OpRequest>(const ExtrasByRank&)> as_it_is(Call call) {
  call.request.keep_alive = std::make_shared<Tensors>(std::move(call.memory));
  auto kept = std::make_shared<OpRequest>(std::move(call.request));
  return [kept](const ExtrasByRank&) -> Result<OpRequest> { return std::move(*kept); };
}

DType reduced_dtype(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                    const NamedGroup::Reducing& how) {
  return value_of(to_dtype(op, argument, tensor, how.op));
}

}  // namespace

NamedGroup::NamedGroup(const ProcessGroupRing& backend, NegotiatorOptions options)
    : place_{backend.getRank(), backend.getSize()},
      negotiation_(value_of(Negotiation::create(backend.communicator(), options))) {}

NamedGroup::Handle NamedGroup::start(NamedCall call, std::shared_ptr<Tensors> outputs,
                                     NamedWork::After after) {
  auto out =
      std::make_shared<NamedWork>(negotiation_, call.name, std::move(outputs), std::move(after));
  out->begin(value_of(negotiation_->call(std::move(call), /*will_wait=*/false)));
  return out;
}

NamedGroup::Handle NamedGroup::call(const std::string& name, const CallContent& content, Call call,
                                    NamedWork::After after) {
  auto outputs = std::make_shared<Tensors>(std::move(call.outputs));
  after.staging = std::move(call.staging);
  return start({name, content.describe(), {}, as_it_is(std::move(call))}, std::move(outputs),
               std::move(after));
}

NamedGroup::Handle NamedGroup::allreduce(const std::string& name, const Tensors& inputs,
                                         const Tensors& outputs, const Reducing& how) {
  constexpr std::string_view kOp = "allreduce";
  throw_if(check_list(kOp, "tensors", inputs, /*written=*/false));
  throw_if(check_list(kOp, "outputs", outputs, /*written=*/true));
  throw_if(check_same_length(kOp, "outputs", outputs.size(), "the tensors", inputs.size()));
  const DType dtype = reduced_dtype(kOp, "tensors[0]", inputs[0], how);
  CallContent content = content_of(Collective::kAllreduce, dtype, inputs[0]);
  content.reduce_op = how.op;
  content.prescale = how.prescale;
  content.postscale = how.postscale;
  Call call(Collective::kAllreduce, dtype, c10d::OpType::ALLREDUCE, "ringdist:all_reduce", kManner);
  call.request.reduce_op = how.op;
  call.outputs = outputs;
  const std::vector<bool> shared = overlapping(outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_input(kOp, "tensors" + index(i), inputs[i]);
    throw_if(check_same_dtype(kOp, "tensors" + index(i), inputs[i], inputs[0]));
    throw_if(check_same_dtype(kOp, "outputs" + index(i), outputs[i], inputs[0]));
    throw_if(check_same_size(kOp, "outputs" + index(i), outputs[i], "the tensor", inputs[i]));
    content.shapes.push_back(shape_of(inputs[i]));
    if (!outputs[i].is_same(inputs[i])) outputs[i].copy_(inputs[i]);
    // A caller's tensor is as it was until all have called it.
    const at::Tensor ours = call.update(outputs[i], /*apart=*/shared[i] || how.prescale != 1);
    scale(ours, how.prescale);
  }
  call.request.count = call.request.output.count();
  return this->call(name, content, std::move(call), {{}, how.postscale});
}

NamedGroup::Handle NamedGroup::broadcast(const std::string& name, const at::Tensor& input,
                                         const at::Tensor& output, int root) {
  constexpr std::string_view kOp = "broadcast";
  check_input(kOp, "tensor", input);
  throw_if(check_tensor(kOp, "output", output, /*written=*/true));
  throw_if(check_same_size(kOp, "output", output, "the tensor", input));
  throw_if(check_same_dtype(kOp, "output", output, input));
  throw_if(check_root(kOp, root, place_.size));
  const DType dtype = value_of(to_dtype(kOp, "tensor", input));
  CallContent content = content_of(Collective::kBroadcast, dtype, input);
  content.root = root;
  content.shapes = {shape_of(input)};
  Call call(Collective::kBroadcast, dtype, c10d::OpType::BROADCAST, "ringdist:broadcast", kManner);
  call.outputs = {output};
  call.request.root = root;
  if (place_.rank == root && !output.is_same(input)) output.copy_(input);
  call.update(output);
  call.request.count = call.request.output.count();
  return this->call(name, content, std::move(call), {});
}

NamedGroup::Handle NamedGroup::allgather(const std::string& name, const at::Tensor& input) {
  constexpr std::string_view kOp = "allgather";
  check_input(kOp, "tensor", input);
  const DType dtype = value_of(to_dtype(kOp, "tensor", input));
  CallContent content = content_of(Collective::kAllgather, dtype, input);
  content.shapes = {shape_of(input, /*free_rows=*/true)};
  auto call = std::make_shared<Call>(Collective::kAllgather, dtype, c10d::OpType::ALLGATHER,
                                     "ringdist:all_gather", kManner);
  call->read(input);
  auto outputs = std::make_shared<Tensors>();
  const auto request = [call, outputs, input](const ExtrasByRank& rows) -> Result<OpRequest> {
    int64_t total = 0;
    for (const auto& [rank, said] : rows) {
      total += said.at(0);
      call->request.output_parts.push_back(said.at(0) * row_length(input));
    }
    outputs->push_back(with_rows(input, total));
    call->write(outputs->front());
    call->request.count = settle_parts(call->request.output_parts);
    call->request.keep_alive = call;
    return std::move(call->request);
  };
  return start({name, content.describe(), std::vector{rows_of(input)}, request}, outputs, {});
}

NamedGroup::Handle NamedGroup::alltoall(const std::string& name, const at::Tensor& input,
                                        std::vector<int64_t> splits) {
  constexpr std::string_view kOp = "alltoall";
  check_input(kOp, "tensor", input);
  const int64_t rows = rows_of(input);
  if (splits.size() != static_cast<size_t>(place_.size) ||
      std::ranges::any_of(splits, [](int64_t one) { return one < 0; }) ||
      std::accumulate(splits.begin(), splits.end(), int64_t{0}) != rows)
    throw_error(invalid_argument(kOp, "splits must be " + std::to_string(place_.size) +
                                          " numbers, of at least 0, whose sum "
                                          "is the " +
                                          std::to_string(rows) + " rows of the tensor; got " +
                                          c10::str(at::IntArrayRef(splits))));
  const DType dtype = value_of(to_dtype(kOp, "tensor", input));
  CallContent content = content_of(Collective::kAlltoall, dtype, input);
  content.shapes = {shape_of(input, /*free_rows=*/true)};
  auto call = std::make_shared<Call>(Collective::kAlltoall, dtype, c10d::OpType::ALLTOALL_BASE,
                                     "ringdist:all_to_all", kManner);
  call->read(input);
  auto outputs = std::make_shared<Tensors>();
  const auto request = [call, outputs, input, splits,
                        rank = place_.rank](const ExtrasByRank& all) -> Result<OpRequest> {
    const int64_t width = row_length(input);
    std::vector<int64_t> received;
    for (const auto& [from, said] : all) received.push_back(said.at(static_cast<size_t>(rank)));
    for (const int64_t one : splits) call->request.input_parts.push_back(one * width);
    for (const int64_t one : received) call->request.output_parts.push_back(one * width);
    const int64_t total = std::accumulate(received.begin(), received.end(), int64_t{0});
    outputs->push_back(with_rows(input, total));
    outputs->push_back(at::tensor(received, at::kLong));
    call->write(outputs->front());
    call->request.keep_alive = call;
    return std::move(call->request);
  };
  return start({name, content.describe(), splits, request}, outputs, {});
}

NamedGroup::Handle NamedGroup::reducescatter(const std::string& name, const at::Tensor& input,
                                             const Reducing& how) {
  constexpr std::string_view kOp = "reducescatter";
  check_input(kOp, "tensor", input);
  if (input.dim() == 0)
    throw_error(invalid_argument(kOp, "tensor must have a dimension 0 to scatter; got a scalar"));
  const DType dtype = reduced_dtype(kOp, "tensor", input, how);
  CallContent content = content_of(Collective::kReduceScatter, dtype, input);
  content.reduce_op = how.op;
  content.prescale = how.prescale;
  content.postscale = how.postscale;
  content.shapes = {shape_of(input)};
  Call call(Collective::kReduceScatter, dtype, c10d::OpType::REDUCE_SCATTER,
            "ringdist:reduce_scatter", kManner);
  call.request.reduce_op = how.op;
  scale(call.read(input, /*apart=*/how.prescale != 1), how.prescale);
  const int64_t size = place_.size;
  const auto part = [&](int64_t rank) {
    return input.size(0) / size + (rank < input.size(0) % size ? 1 : 0);
  };
  for (int64_t rank = 0; rank < size; ++rank)
    call.request.input_parts.push_back(part(rank) * row_length(input));
  call.request.count = settle_parts(call.request.input_parts);
  call.outputs = {with_rows(input, part(place_.rank))};
  call.write(call.outputs[0]);
  return this->call(name, content, std::move(call), {{}, how.postscale});
}

NamedGroup::Handle NamedGroup::barrier(const std::string& name) {
  CallContent content;
  content.kind = Collective::kBarrier;
  content.dtype = DType::kBytes;
  return this->call(
      name, content,
      Call(Collective::kBarrier, DType::kBytes, c10d::OpType::BARRIER, "ringdist:barrier", kManner),
      {});
}

int NamedGroup::join() {
  const auto join = value_of(negotiation_->join());
  (void)wait_in_slices(std::nullopt, [&](std::optional<Milliseconds> limit) {
    return negotiation_->wait(*join.end, limit);
  });
  throw_if(join.end->error());
  return *join.last;
}

}  // namespace ringdist
