#include "torch/backend.h"

#include "torch/errors.h"
#include "torch/work.h"

namespace ringdist {

ProcessGroupRing::ProcessGroupRing(std::shared_ptr<Communicator> communicator, CodecPair codecs)
    : Backend(communicator->rank(), communicator->size()),
      communicator_(std::move(communicator)),
      codecs_(std::move(codecs)) {}

// Dropped without shutdown(): what is in flight may still finish, so that others are not left
// waiting.
ProcessGroupRing::~ProcessGroupRing() = default;

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupRing::getBackendOptions() {
  auto options = c10::make_intrusive<c10d::Backend::Options>("ringdist");
  options->group_name = communicator_->name();
  return options;
}

void ProcessGroupRing::setTimeout(std::chrono::milliseconds timeout) {
  communicator_->set_timeout(timeout);
}

c10d::ErrorType ProcessGroupRing::getError() {
  const Error error = communicator_->failure();
  if (!error) return c10d::ErrorType::SUCCESS;
  if (error.kind() == ErrorKind::kTimeout) return c10d::ErrorType::TIMEOUT;
  return error.culprit() >= 0 && error.culprit() != getRank() ? c10d::ErrorType::REMOTE_ERROR
                                                              : c10d::ErrorType::COMM_ERROR;
}

void ProcessGroupRing::abort() {
  communicator_->abort("rank " + std::to_string(getRank()) + " aborted the group");
}

void ProcessGroupRing::shutdown() { communicator_->close(); }

c10::intrusive_ptr<c10d::Work> ProcessGroupRing::run(Call call, std::chrono::milliseconds timeout) {
  if (timeout != c10d::kUnsetTimeout) call.request.timeout = timeout;
  call.request.keep_alive = std::make_shared<std::vector<at::Tensor>>(std::move(call.memory));
  auto op = communicator_->submit(std::move(call.request), /*will_wait=*/!call.async);
  throw_if(op.error());
  return RingWork::create(communicator_, op.value(), call.type, call.title, std::move(call.inputs),
                          std::move(call.outputs), std::move(call.staging));
}

ReduceOp ProcessGroupRing::reduce_op(std::string_view op, const c10d::ReduceOp& given) const {
  switch (given.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAvg;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    default:
      break;
  }
  static constexpr std::string_view kNames[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                                "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
  const auto i = static_cast<size_t>(static_cast<c10d::ReduceOp::RedOpType>(given.op_));
  throw_error(Error(ErrorKind::kInvalidArgument,
                    "ringdist: " + std::string(op) + ": op " +
                        (i < std::size(kNames) ? std::string(kNames[i]) : "unknown") +
                        " is not supported; supported: SUM, AVG, MIN, MAX, PRODUCT"));
}

ProcessGroupRing::Call ProcessGroupRing::allreduce_call(const at::Tensor& tensor,
                                                        const c10d::AllreduceOptions& opts) {
  throw_if(check_tensor("all_reduce", "tensor", tensor, /*written=*/true));
  auto dtype = to_dtype("all_reduce", "tensor", tensor, /*reduces=*/true);
  throw_if(dtype.error());
  Call call{{},          {}, {tensor}, {tensor}, {}, c10d::OpType::ALLREDUCE, "ringdist:all_reduce",
            opts.asyncOp};
  call.request.kind = Collective::kAllreduce;
  call.request.dtype = dtype.value();
  call.request.reduce_op = reduce_op("all_reduce", opts.reduceOp);
  const at::Tensor ours = call.staging.use(tensor, /*reads=*/true, /*writes=*/true);
  call.request.count = ours.numel();
  call.request.output = Buffer(ours.element_size());
  append(call.request.output, ours);
  call.memory = {ours};
  return call;
}

c10::intrusive_ptr<c10d::Work> ProcessGroupRing::allreduce(std::vector<at::Tensor>& tensors,
                                                           const c10d::AllreduceOptions& opts) {
  throw_if(check_single("all_reduce", "tensor", tensors, /*written=*/true));
  Call call = allreduce_call(tensors[0], opts);
  apply_option(call, reduced(call, "all_reduce", "tensor"));
  return run(std::move(call), opts.timeout);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupRing::broadcast(std::vector<at::Tensor>& tensors,
                                                           const c10d::BroadcastOptions& opts) {
  throw_if(check_single("broadcast", "tensor", tensors, /*written=*/true));
  auto dtype = to_dtype("broadcast", "tensor", tensors[0], /*reduces=*/false);
  throw_if(dtype.error());
  if (opts.rootRank < 0 || opts.rootRank >= getSize())
    throw_error(Error(ErrorKind::kInvalidArgument,
                      "ringdist: broadcast: invalid root rank: " + std::to_string(opts.rootRank) +
                          "; it must be in [0, " + std::to_string(getSize()) + ")"));
  if (opts.rootTensor != 0)
    throw_error(Error(ErrorKind::kInvalidArgument, "ringdist: broadcast: invalid root tensor: " +
                                                       std::to_string(opts.rootTensor) +
                                                       "; there is one tensor, so it must be 0"));
  Call call{{},          {}, tensors, tensors, {}, c10d::OpType::BROADCAST, "ringdist:broadcast",
            opts.asyncOp};
  call.request.kind = Collective::kBroadcast;
  call.request.dtype = dtype.value();
  call.request.root = static_cast<int>(opts.rootRank);
  const bool is_root = opts.rootRank == getRank();
  const at::Tensor ours = call.staging.use(tensors[0], /*reads=*/is_root, /*writes=*/!is_root);
  call.request.count = ours.numel();
  call.request.output = Buffer(ours.element_size());
  append(call.request.output, ours);
  call.memory = {ours};
  return run(std::move(call), opts.timeout);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupRing::allgather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& opts) {
  throw_if(check_single("all_gather", "input", inputs, /*written=*/false));
  const at::Tensor& input = inputs[0];
  auto dtype = to_dtype("all_gather", "input", input, /*reduces=*/false);
  throw_if(dtype.error());
  if (outputs.size() != 1)
    throw_error(Error(ErrorKind::kInvalidArgument,
                      "ringdist: all_gather: output must be one list of tensors, " +
                          std::to_string(outputs.size()) + " lists given"));
  if (outputs[0].size() != static_cast<size_t>(getSize()))
    throw_error(Error(ErrorKind::kInvalidArgument,
                      "ringdist: all_gather: the output tensor list must have one tensor per "
                      "rank: " +
                          std::to_string(getSize()) + " expected, " +
                          std::to_string(outputs[0].size()) + " given"));
  Call call{{},          {}, inputs, outputs[0], {}, c10d::OpType::ALLGATHER, "ringdist:all_gather",
            opts.asyncOp};
  call.request.kind = Collective::kAllgather;
  call.request.dtype = dtype.value();
  call.request.count = input.numel();
  call.request.output = Buffer(input.element_size());
  bool apart = false;
  for (int rank = 0; rank < getSize(); ++rank) {
    const std::string name = "output[" + std::to_string(rank) + "]";
    const at::Tensor& output = outputs[0][rank];
    throw_if(check_tensor("all_gather", name, output, /*written=*/true));
    throw_if(check_same_dtype("all_gather", name, output, input));
    if (output.numel() != input.numel())
      throw_error(Error(ErrorKind::kInvalidArgument,
                        "ringdist: all_gather: invalid tensor size: " + name + " is " +
                            describe(output) + ", the input is " + describe(input)));
    apart |= share_memory(output, input);
  }
  for (const at::Tensor& output : outputs[0]) {
    call.memory.push_back(call.staging.use(output, /*reads=*/false, /*writes=*/true));
    append(call.request.output, call.memory.back());
  }
  call.memory.push_back(call.staging.use(input, /*reads=*/true, /*writes=*/false, apart));
  call.request.input = Buffer(input.element_size());
  append(call.request.input, call.memory.back());
  return run(std::move(call), opts.timeout);
}

ProcessGroupRing::Call ProcessGroupRing::allgather_call(const at::Tensor& output,
                                                        const at::Tensor& input,
                                                        const c10d::AllgatherOptions& opts) {
  constexpr std::string_view kOp = "all_gather_into_tensor";
  throw_if(check_tensor(kOp, "input", input, /*written=*/false));
  throw_if(check_tensor(kOp, "output", output, /*written=*/true));
  throw_if(check_same_dtype(kOp, "output", output, input));
  auto dtype = to_dtype(kOp, "input", input, /*reduces=*/false);
  throw_if(dtype.error());
  if (output.numel() != input.numel() * getSize())
    throw_error(Error(ErrorKind::kInvalidArgument,
                      "ringdist: all_gather_into_tensor: invalid tensor size: output is " +
                          describe(output) + ", but the input is " + describe(input) + " on " +
                          std::to_string(getSize()) + " ranks, so it must have " +
                          std::to_string(input.numel() * getSize()) + " elements"));
  Call call{{},
            {},
            {input},
            {output},
            {},
            c10d::OpType::_ALLGATHER_BASE,
            "ringdist:all_gather_into_tensor",
            opts.asyncOp};
  call.request.kind = Collective::kAllgather;
  call.request.dtype = dtype.value();
  call.request.count = input.numel();
  const at::Tensor to = call.staging.use(output, /*reads=*/false, /*writes=*/true);
  // In place is the input at its rank's part of the output; any other overlap needs a copy.
  const auto* part = static_cast<const std::byte*>(to.const_data_ptr()) +
                     getRank() * input.numel() * static_cast<int64_t>(input.element_size());
  const bool in_place = input.is_contiguous() && input.const_data_ptr() == part;
  const at::Tensor from = call.staging.use(input, /*reads=*/true, /*writes=*/false,
                                           /*apart=*/!in_place && share_memory(to, input));
  call.request.input = Buffer(input.element_size());
  append(call.request.input, from);
  call.request.output = Buffer(input.element_size());
  append(call.request.output, to);
  call.memory = {from, to};
  return call;
}

c10::intrusive_ptr<c10d::Work> ProcessGroupRing::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  return run(allgather_call(output, input, opts), opts.timeout);
}

ProcessGroupRing::Call ProcessGroupRing::reduce_scatter_call(
    const at::Tensor& output, const at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  constexpr std::string_view kOp = "reduce_scatter_tensor";
  throw_if(check_tensor(kOp, "input", input, /*written=*/false));
  throw_if(check_tensor(kOp, "output", output, /*written=*/true));
  throw_if(check_same_dtype(kOp, "output", output, input));
  auto dtype = to_dtype(kOp, "input", input, /*reduces=*/true);
  throw_if(dtype.error());
  if (input.numel() != output.numel() * getSize())
    throw_error(Error(ErrorKind::kInvalidArgument,
                      "ringdist: reduce_scatter_tensor: invalid tensor size: input is " +
                          describe(input) + ", but the output is " + describe(output) + " on " +
                          std::to_string(getSize()) + " ranks, so it must have " +
                          std::to_string(output.numel() * getSize()) + " elements"));
  Call call{{},
            {},
            {input},
            {output},
            {},
            c10d::OpType::_REDUCE_SCATTER_BASE,
            "ringdist:reduce_scatter_tensor",
            opts.asyncOp};
  call.request.kind = Collective::kReduceScatter;
  call.request.dtype = dtype.value();
  call.request.reduce_op = reduce_op(kOp, opts.reduceOp);
  call.request.count = output.numel();
  const at::Tensor from = call.staging.use(input, /*reads=*/true, /*writes=*/false);
  const at::Tensor to = call.staging.use(output, /*reads=*/false, /*writes=*/true,
                                         /*apart=*/share_memory(output, from));
  call.request.input = Buffer(input.element_size());
  append(call.request.input, from);
  call.request.output = Buffer(input.element_size());
  append(call.request.output, to);
  call.memory = {from, to};
  return call;
}

c10::intrusive_ptr<c10d::Work> ProcessGroupRing::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  Call call = reduce_scatter_call(output, input, opts);
  apply_option(call, reduced(call, "reduce_scatter_tensor", "input"));
  return run(std::move(call), opts.timeout);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupRing::barrier(const c10d::BarrierOptions& opts) {
  Call call{{}, {}, {}, {}, {}, c10d::OpType::BARRIER, "ringdist:barrier", opts.asyncOp};
  call.request.kind = Collective::kBarrier;
  call.request.dtype = DType::kBytes;
  return run(std::move(call), opts.timeout);
}

}  // namespace ringdist
