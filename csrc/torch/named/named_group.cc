#include "torch/named/named_group.h"

#include <ATen/ops/atleast_1d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "torch/base/errors.h"
#include "torch/named/named_work.h"
#include "torch/ops/arguments.h"
#include "torch/work/interrupts.h"

namespace ringdist {
namespace {

constexpr Call::WaitOptions kManner{c10d::kUnsetTimeout, /*async=*/true};

using Requests = std::vector<OpRequest>;

// Describes a tensor for the comparison between ranks. With `free_rows`, ranks may differ in
// dimension 0.
CallContent::Tensor content_of(DType dtype, const at::Tensor& tensor, bool free_rows = false) {
  CallContent::Tensor out{dtype, tensor.sizes().vec()};
  if (!free_rows) return out;
  if (out.shape.empty()) out.shape.push_back(1);
  out.shape[0] = CallContent::kAny;
  return out;
}

int64_t rows_of(const at::Tensor& tensor) { return tensor.dim() == 0 ? 1 : tensor.size(0); }

// Returns the elements of a row, also if there is no row.
int64_t row_length(const at::Tensor& tensor) {
  int64_t out = 1;
  for (int64_t dim = 1; dim < tensor.dim(); ++dim) out *= tensor.size(dim);
  return out;
}

// Returns an uninitialized tensor like `like`, but with `rows` rows.
at::Tensor with_rows(const at::Tensor& like, int64_t rows) {
  std::vector<int64_t> shape = like.sizes().vec();
  if (shape.empty()) shape.push_back(1);
  shape[0] = rows;
  return at::empty(shape, like.options().memory_format(at::MemoryFormat::Contiguous));
}

CallContent content_of(Collective kind, const at::Tensor& first) {
  CallContent out;
  out.kind = kind;
  out.where = c10::DeviceTypeName(first.device().type(), /*lower_case=*/true);
  return out;
}

CallContent content_of(Collective kind, const at::Tensor& first,
                       const NamedGroup::ReduceOptions& how) {
  CallContent out = content_of(kind, first);
  out.reduce_op = how.op;
  out.prescale = how.prescale;
  out.postscale = how.postscale;
  return out;
}

// Adds a tensor to the content. Tensors that are moved as bytes have one dtype for the engine, so
// `variant` has their own dtypes, which ranks must have alike.
void add(CallContent& content, DType dtype, const at::Tensor& tensor, bool free_rows = false) {
  content.tensors.push_back(content_of(dtype, tensor, free_rows));
  if (dtype != DType::kBytes) return;
  content.variant +=
      (content.variant.empty() ? "" : ", ") + std::string(c10::toString(tensor.scalar_type()));
}

// Makes the request hold the memory of its call.
void settle_memory(Call& call) {
  call.request.keep_alive = std::make_shared<Tensors>(std::move(call.memory));
}

// Calls with sizes that depend on other ranks. They wait here until the ranks have exchanged these.
struct Unsized {
  std::vector<Call> calls;
  Tensors inputs;
};

// Completes the request for one tensor, after each rank has reported its number of rows.
OpRequest gather(Call& call, const at::Tensor& input, const std::vector<int64_t>& rows,
                 Tensors& outputs) {
  for (const int64_t count : rows) call.request.output_parts.push_back(count * row_length(input));
  outputs.push_back(with_rows(input, std::accumulate(rows.begin(), rows.end(), int64_t{0})));
  call.write(outputs.back());
  call.request.count = normalize_parts(call.request.output_parts);
  settle_memory(call);
  return std::move(call.request);
}

}  // namespace

NamedGroup::NamedGroup(std::shared_ptr<Communicator> group, NegotiationOptions options,
                       c10::DeviceType devices)
    : place_{group->rank(), group->size()},
      negotiation_(value_of(Negotiation::create(std::move(group), options))),
      device_(devices) {}

// On a device, the requests are made and run on the group's stream.
NamedGroup::Handle NamedGroup::start(NamedCall call, const Side& side,
                                     std::shared_ptr<Tensors> outputs, NamedWork::OnSuccess after,
                                     bool will_wait) {
  if (side) {
    after.device = side->device();
    call.requests = on_stream(*side, std::move(call.requests));
  }
  auto out =
      std::make_shared<NamedWork>(negotiation_, call.name, std::move(outputs), std::move(after));
  out->begin(value_of(negotiation_->call(std::move(call), will_wait)));
  return out;
}

// The requests are moved out when the negotiation has decided on the call, which happens once.
NamedGroup::Handle NamedGroup::start_all(std::string_view op, const std::string& name,
                                         const CallContent& content, const Side& side,
                                         std::vector<Call> calls, Tensors outputs, double factor,
                                         bool will_wait) {
  NamedWork::OnSuccess after{{}, factor, {}};
  auto kept = std::make_shared<Requests>();
  for (Call& call : calls) {
    after.staging.add(std::move(call.staging));
    settle_memory(call);
    kept->push_back(std::move(call.request));
  }
  const auto requests = [kept](const ExtrasByRank&) -> Result<Requests> {
    return std::move(*kept);
  };
  return start({name, std::string(op), content.describe(), {}, requests}, side,
               std::make_shared<Tensors>(std::move(outputs)), std::move(after), will_wait);
}

NamedGroup::Handle NamedGroup::allreduce(const std::string& name, const Tensors& inputs,
                                         const Tensors& outputs, const ReduceOptions& how) {
  constexpr std::string_view kOp = "allreduce";
  const at::AutoGradMode no_grad(false);
  throw_if(check_list(kOp, "tensors", inputs, /*written=*/false));
  throw_if(check_list(kOp, "outputs", outputs, /*written=*/true));
  throw_if(check_same_length(kOp, "outputs", outputs.size(), "the tensors", inputs.size()));
  const Side side = device_.stream_of(kOp, inputs, outputs);
  CallContent content = content_of(Collective::kAllreduce, inputs[0], how);
  for (size_t i = 0; i < inputs.size(); ++i) {
    throw_if(check_same_dtype(kOp, "outputs" + index(i), outputs[i], inputs[i]));
    throw_if(check_same_size(kOp, "outputs" + index(i), outputs[i], "the tensor", inputs[i]));
    add(content, value_of(to_dtype(kOp, "tensors" + index(i), inputs[i], how.op)), inputs[i]);
  }
  std::vector<Call> calls;
  const std::vector<bool> shared = overlapping(outputs);
  for (const auto& group : by_dtype(inputs)) {
    const DType dtype = content.tensors[group[0]].dtype;
    Call& call = calls.emplace_back(Collective::kAllreduce, dtype, c10d::OpType::ALLREDUCE,
                                    "ringdist:all_reduce", kManner);
    call.request.reduce_op = how.op;
    for (const size_t i : group) {
      if (!outputs[i].is_same(inputs[i])) outputs[i].copy_(inputs[i]);
      // The caller's tensor must not change before all ranks have called the operation.
      const bool apart = shared[i] || how.prescale != 1;
      const at::Tensor ours = call.update(outputs[i], apart);
      if (how.prescale != 1) ours.copy_(scaled_by(ours, how.prescale));
    }
    call.request.count = call.request.output.count();
  }
  return start_all(kOp, name, content, side, std::move(calls), outputs, how.postscale,
                   how.will_wait);
}

NamedGroup::Handle NamedGroup::broadcast(const std::string& name, const at::Tensor& input,
                                         const at::Tensor& output, int root) {
  constexpr std::string_view kOp = "broadcast";
  throw_if(check_tensor(kOp, "tensor", input, /*written=*/false));
  throw_if(check_tensor(kOp, "output", output, /*written=*/true));
  throw_if(check_same_size(kOp, "output", output, "the tensor", input));
  throw_if(check_same_dtype(kOp, "output", output, input));
  throw_if(check_root(kOp, root, place_.size));
  const Side side = device_.stream_of(kOp, input, output);
  const DType dtype = value_of(to_dtype(kOp, "tensor", input));
  CallContent content = content_of(Collective::kBroadcast, input);
  content.root = root;
  add(content, dtype, input);
  std::vector<Call> calls;
  Call& call = calls.emplace_back(Collective::kBroadcast, dtype, c10d::OpType::BROADCAST,
                                  "ringdist:broadcast", kManner);
  call.request.root = root;
  if (place_.rank == root && !output.is_same(input)) output.copy_(input);
  call.update(output);
  call.request.count = call.request.output.count();
  return start_all(kOp, name, content, side, std::move(calls), {output});
}

NamedGroup::Handle NamedGroup::allgather(const std::string& name, const Tensors& inputs,
                                         const std::string& variant) {
  constexpr std::string_view kOp = "allgather";
  throw_if(check_list(kOp, "tensors", inputs, /*written=*/false));
  const Side side = device_.stream_of(kOp, inputs);
  CallContent content = content_of(Collective::kAllgather, inputs[0]);
  content.variant = variant;
  const auto kept = std::make_shared<Unsized>();
  kept->inputs = inputs;
  std::vector<int64_t> own;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DType dtype = value_of(to_dtype(kOp, "tensors" + index(i), inputs[i]));
    add(content, dtype, inputs[i], /*free_rows=*/true);
    own.push_back(rows_of(inputs[i]));
    kept->calls.emplace_back(Collective::kAllgather, dtype, c10d::OpType::ALLGATHER,
                             "ringdist:all_gather", kManner);
    kept->calls.back().read(inputs[i]);
  }
  auto outputs = std::make_shared<Tensors>();
  const auto requests = [kept, outputs](const ExtrasByRank& said) -> Result<Requests> {
    Requests out;
    for (size_t i = 0; i < kept->inputs.size(); ++i) {
      std::vector<int64_t> rows;
      for (const auto& [rank, values] : said) rows.push_back(values.at(i));
      out.push_back(gather(kept->calls[i], kept->inputs[i], rows, *outputs));
    }
    return out;
  };
  return start({name, std::string(kOp), content.describe(), own, requests}, side, outputs, {});
}

NamedGroup::Handle NamedGroup::alltoall(const std::string& name, const at::Tensor& input,
                                        std::vector<int64_t> splits) {
  constexpr std::string_view kOp = "alltoall";
  throw_if(check_tensor(kOp, "tensor", input, /*written=*/false));
  const Side side = device_.stream_of(kOp, input);
  const int64_t rows = rows_of(input);
  const int64_t sent = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  if (splits.size() != static_cast<size_t>(place_.size) ||
      std::ranges::any_of(splits, [](int64_t one) { return one < 0; }) || sent > rows)
    throw_error(invalid_argument(kOp, "splits must be " + std::to_string(place_.size) +
                                          " numbers, of at least 0, whose sum is at most the " +
                                          std::to_string(rows) + " rows of the tensor; got " +
                                          c10::str(at::IntArrayRef(splits))));
  const DType dtype = value_of(to_dtype(kOp, "tensor", input));
  CallContent content = content_of(Collective::kAlltoall, input);
  add(content, dtype, input, /*free_rows=*/true);
  auto call = std::make_shared<Call>(Collective::kAlltoall, dtype, c10d::OpType::ALLTOALL_BASE,
                                     "ringdist:all_to_all", kManner);
  call->read(sent < rows ? at::atleast_1d(input).narrow(0, 0, sent) : input);
  auto outputs = std::make_shared<Tensors>();
  const auto requests = [call, outputs, input, splits,
                         rank = place_.rank](const ExtrasByRank& said) -> Result<Requests> {
    std::vector<int64_t> received;
    for (const auto& [from, values] : said)
      received.push_back(values.at(static_cast<size_t>(rank)));
    const int64_t width = row_length(input);
    for (const int64_t one : splits) call->request.input_parts.push_back(one * width);
    for (const int64_t one : received) call->request.output_parts.push_back(one * width);
    const int64_t total = std::accumulate(received.begin(), received.end(), int64_t{0});
    outputs->push_back(with_rows(input, total));
    outputs->push_back(at::tensor(received, at::TensorOptions(at::kLong).device(at::kCPU)));
    call->write(outputs->front());
    settle_memory(*call);
    Requests out;
    out.push_back(std::move(call->request));
    return out;
  };
  return start({name, std::string(kOp), content.describe(), splits, requests}, side, outputs, {});
}

NamedGroup::Handle NamedGroup::reducescatter(const std::string& name, const Tensors& inputs,
                                             const ReduceOptions& how) {
  constexpr std::string_view kOp = "reducescatter";
  throw_if(check_list(kOp, "tensors", inputs, /*written=*/false));
  const Side side = device_.stream_of(kOp, inputs);
  CallContent content = content_of(Collective::kReduceScatter, inputs[0], how);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dim() == 0)
      throw_error(invalid_argument(
          kOp, "tensors" + index(i) + " must have a dimension 0 to scatter; got a scalar"));
    add(content, value_of(to_dtype(kOp, "tensors" + index(i), inputs[i], how.op)), inputs[i]);
  }
  std::vector<Call> calls;
  Tensors outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    Call& call =
        calls.emplace_back(Collective::kReduceScatter, content.tensors[i].dtype,
                           c10d::OpType::REDUCE_SCATTER, "ringdist:reduce_scatter", kManner);
    call.request.reduce_op = how.op;
    const at::Tensor ours = call.read(input, /*apart=*/how.prescale != 1);
    if (how.prescale != 1) ours.copy_(scaled_by(ours, how.prescale));
    const auto part = [&](int64_t rank) {
      return input.size(0) / place_.size + (rank < input.size(0) % place_.size ? 1 : 0);
    };
    for (int64_t rank = 0; rank < place_.size; ++rank)
      call.request.input_parts.push_back(part(rank) * row_length(input));
    call.request.count = normalize_parts(call.request.input_parts);
    outputs.push_back(with_rows(input, part(place_.rank)));
    call.write(outputs.back());
  }
  return start_all(kOp, name, content, side, std::move(calls), std::move(outputs), how.postscale);
}

// The decision shows that all ranks have called it, so there is no op to run.
NamedGroup::Handle NamedGroup::barrier(const std::string& name) {
  CallContent content;
  content.kind = Collective::kBarrier;
  return start_all("barrier", name, content, {}, {}, {});
}

void NamedGroup::tune(int64_t fusion_bytes, int batches_in_flight) {
  if (fusion_bytes < 0 || batches_in_flight < 1)
    throw_error(invalid_argument("tune",
                                 "fusion_bytes must be at least 0 and batches_in_flight at "
                                 "least 1; got " +
                                     std::to_string(fusion_bytes) + " and " +
                                     std::to_string(batches_in_flight)));
  throw_if(negotiation_->tune(fusion_bytes, batches_in_flight));
}

void NamedGroup::start_timeline(const std::string& path, bool marks_cycles) {
  throw_if(negotiation_->start_timeline(path, marks_cycles));
}

bool NamedGroup::stop_timeline(std::optional<Milliseconds> limit) {
  const auto end = value_of(negotiation_->stop_timeline());
  const bool ended = wait_in_slices(
      limit, [&](std::optional<Milliseconds> slice) { return negotiation_->wait(*end, slice); });
  if (ended) throw_if(end->error());
  return ended;
}

int NamedGroup::join(std::optional<c10::DeviceIndex> device) {
  const auto join = value_of(negotiation_->join(device ? device_.filler(*device) : FillOnDevice()));
  (void)wait_in_slices(std::nullopt, [&](std::optional<Milliseconds> limit) {
    return negotiation_->wait(*join.end, limit);
  });
  throw_if(join.end->error());
  return *join.last;
}

}  // namespace ringdist
