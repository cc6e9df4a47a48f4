#include "torch/backend.h"

#include <algorithm>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "engine/join_client.h"
#include "torch/monitored_barrier.h"
#include "torch/ops/all_to_all.h"
#include "torch/ops/data_movement.h"
#include "torch/ops/reduce.h"
#include "torch/torch_store.h"
#include "torch/work/interrupts.h"

namespace ringdist {
namespace {

constexpr int kShrinkAbort = 1;  // torch.distributed.distributed_c10d.SHRINK_ABORT

// Makes the backend of a group that takes its settings from another group.
c10::intrusive_ptr<ProcessGroupRing> make_backend(std::shared_ptr<Communicator> communicator) {
  auto codecs =
      parse_compression("option codec", communicator->config().codec, communicator->size());
  throw_if(codecs.error());
  return c10::make_intrusive<ProcessGroupRing>(std::move(communicator), codecs.value());
}

}  // namespace

ProcessGroupRing::ProcessGroupRing(std::shared_ptr<Communicator> communicator, CodecPair codecs)
    : Backend(communicator->rank(), communicator->size()),
      active_(std::make_shared<ActiveGroup>(std::move(communicator), std::move(codecs))) {}

ProcessGroupRing::ProcessGroupRing(std::shared_ptr<Reconfiguration> reconfiguration, int rank,
                                   int size)
    : Backend(rank, size), active_(std::move(reconfiguration)) {}

// Without shutdown(), ops in flight may still finish, so that other ranks are not left waiting.
ProcessGroupRing::~ProcessGroupRing() = default;

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupRing::getBackendOptions() {
  auto options = c10::make_intrusive<c10d::Backend::Options>("ringdist");
  active_.describe(*options);
  return options;
}

#if RINGDIST_TORCH_HAS_RECONFIGURE
WorkPtr ProcessGroupRing::reconfigure(const c10d::ReconfigureOptions& opts) {
  Reconfiguration::Request request;
  request.uuid = opts.uuid;
  request.ordered = std::holds_alternative<std::vector<std::string>>(opts.handles);
  std::visit([&](const auto& handles) { request.handles.assign(handles.begin(), handles.end()); },
             opts.handles);
  request.timeout =
      opts.timeout ? value_of(checked_timeout("reconfigure", *opts.timeout)) : active_.timeout();
  const auto group = active_.reconfigure(request);
  rank_ = group->rank();
  size_ = group->size();
  // PyTorch expects a Work, although the group has formed already.
  auto done = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  done->markCompleted(std::vector<at::Tensor>());
  return c10d::Work::create_from_future(done);
}
#endif

c10::intrusive_ptr<c10d::Backend> ProcessGroupRing::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  for (const int rank : ranks)
    if (rank < 0 || rank >= getSize())
      throw_error(invalid_argument("split_group", "ranks has rank " + std::to_string(rank) +
                                                      "; this group has 0 to " +
                                                      std::to_string(getSize() - 1)));
  std::string name = "split";
  for (const int rank : ranks) name += " " + std::to_string(rank);
  // Other subgroups may be split off under the same prefix of the store.
  const auto own = c10::make_intrusive<c10d::PrefixStore>(name, store);
  if (opts && !opts->group_name.empty()) name = opts->group_name;
  const auto group = active_.current();
  const Milliseconds timeout =
      value_of(checked_timeout("split_group", opts ? opts->timeout : kBackendDefaultTimeout));
  const std::string scope = group->communicator->name() + "/" + name;
  auto communicator = group->communicator->subgroup(
      ranks, wrap_store(own, group->communicator->context(), scope), name, timeout);
  throw_if(communicator.error());
  if (!communicator.value()) return nullptr;
  return make_backend(communicator.value());
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupRing::shrink(
    const std::vector<int64_t>& ranks_to_exclude, int flags,
    const c10::intrusive_ptr<c10d::Backend::Options>&) {
  std::set<int> excluded;
  for (const int64_t rank : ranks_to_exclude) {
    if (rank < 0 || rank >= getSize() || rank == getRank() ||
        !excluded.insert(static_cast<int>(rank)).second)
      throw_error(invalid_argument("shrink_group",
                                   "ranks_to_exclude has rank " + std::to_string(rank) +
                                       " twice, or it is this one, or none of the group's: 0 to " +
                                       std::to_string(getSize() - 1)));
  }
  if (excluded.empty()) throw_error(invalid_argument("shrink_group", "ranks_to_exclude is empty"));
  const auto group = active_.current();
  if (flags & kShrinkAbort)
    (void)group->communicator->stop_and_report(
        {ErrorKind::kAborted, "this rank has shrunk the group"});
  auto communicator = group->communicator->without({excluded.begin(), excluded.end()});
  throw_if(communicator.error());
  return make_backend(communicator.value());
}

ProcessGroupRing::Next ProcessGroupRing::next_generation(std::chrono::milliseconds timeout) {
  const auto group = active_.current();
  std::optional<Result<ShrinkResult>> shrunk;
  const TimePoint limit = Clock::now() + timeout;
  // A shrink() that has reached its limit may be called again, so an interrupt can end the wait.
  (void)wait_in_slices(timeout, [&](std::optional<Milliseconds> slice) {
    shrunk = group->communicator->shrink(slice.value_or(timeout), limit);
    return shrunk->ok() || shrunk->error().kind() != ErrorKind::kTimeout;
  });
  throw_if(shrunk->error());
  return {make_backend(shrunk->value().group), shrunk->value()};
}

ProcessGroupRing::Joined ProcessGroupRing::join(std::shared_ptr<Context> context,
                                                CommunicatorOptions options, std::string job,
                                                std::chrono::milliseconds timeout) {
  JoinClient admission(std::move(context), std::move(options), std::move(job));
  std::optional<Result<ShrinkResult>> joined;
  const bool is_in = wait_in_slices(timeout, [&](std::optional<Milliseconds> slice) {
    joined = admission.wait(Clock::now() + slice.value_or(timeout));
    return joined.has_value();
  });
  const Error error = is_in ? joined->error() : admission.none_yet();
  throw_if(error ? error.prefixed("ringdist: join: ") : error);
  const GroupAdvertisement& by = admission.advertisement();
  return {{make_backend(joined->value().group), joined->value()}, by.name, by.note};
}

void ProcessGroupRing::startCoalescing() { active_.current()->submitter->begin_region(); }

WorkPtr ProcessGroupRing::endCoalescing() { return active_.current()->submitter->end_region(); }

#if RINGDIST_TORCH_HAS_COMPLETION_HOOKS
void ProcessGroupRing::registerCompletionHook(int64_t hook_id, c10d::CompletionHook hook) {
  active_.add_success_hook(hook_id, [hook = std::move(hook)](uint64_t key, float milliseconds) {
    hook({.completionKey = key, .duration_ms = milliseconds});
  });
}
#endif

WorkPtr ProcessGroupRing::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter).submit(broadcast_call(group->ranks, tensors, opts));
}

WorkPtr ProcessGroupRing::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const auto group = active_.current();
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].layout() == at::kSparse)
    return allreduce_sparse(tensors, opts);
  CallScope scope(*group->submitter);
  Call call = allreduce_call(tensors, opts);
  group->compressor.apply_option(call);
  return scope.submit(std::move(call));
}

WorkPtr ProcessGroupRing::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter)
      .add(group->sparse.reduce(sparse_allreduce_call(tensors, opts)));
}

WorkPtr ProcessGroupRing::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& opts) {
  const auto group = active_.current();
  CallScope scope(*group->submitter);
  Call call = allreduce_coalesced_call(tensors, opts);
  group->compressor.apply_option(call);
  return scope.submit(std::move(call));
}

WorkPtr ProcessGroupRing::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter).submit(reduce_call(group->ranks, tensors, opts));
}

WorkPtr ProcessGroupRing::allgather(TensorLists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter).submit(allgather_call(group->ranks, outputs, inputs, opts));
}

WorkPtr ProcessGroupRing::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter)
      .submit(allgather_into_tensor_call(group->ranks, output, input, opts));
}

WorkPtr ProcessGroupRing::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter)
      .submit_all(c10d::OpType::ALLGATHER_COALESCED,
                  allgather_calls(group->ranks, outputs, inputs, opts));
}

WorkPtr ProcessGroupRing::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter)
      .submit_all(c10d::OpType::ALLGATHER_COALESCED,
                  allgather_into_tensor_calls(group->ranks, outputs, inputs, opts));
}

WorkPtr ProcessGroupRing::gather(TensorLists& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter).submit(gather_call(group->ranks, outputs, inputs, opts));
}

#if RINGDIST_TORCH_HAS_GATHER_INTO_TENSOR
WorkPtr ProcessGroupRing::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                             const c10d::GatherOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter)
      .submit(gather_into_tensor_call(group->ranks, output, input, opts));
}
#endif

WorkPtr ProcessGroupRing::scatter(Tensors& outputs, TensorLists& inputs,
                                  const c10d::ScatterOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter).submit(scatter_call(group->ranks, outputs, inputs, opts));
}

WorkPtr ProcessGroupRing::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                         const c10d::ReduceScatterOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter)
      .submit(reduce_scatter_call(group->ranks, outputs, inputs, opts));
}

WorkPtr ProcessGroupRing::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& opts) {
  const auto group = active_.current();
  CallScope scope(*group->submitter);
  Call call = reduce_scatter_tensor_call(group->ranks, output, input, opts);
  group->compressor.apply_option(call);
  return scope.submit(std::move(call));
}

WorkPtr ProcessGroupRing::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& opts) {
  const auto group = active_.current();
  CallScope scope(*group->submitter);
  auto calls = reduce_scatter_tensor_calls(group->ranks, outputs, inputs, opts);
  for (Call& call : calls) group->compressor.apply_option(call);
  return scope.submit_all(reduce_scatter_coalesced<c10d::OpType>(), std::move(calls));
}

WorkPtr ProcessGroupRing::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits,
                                        const c10d::AllToAllOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter)
      .submit(alltoall_call(group->ranks, output, input, output_splits, input_splits, opts));
}

WorkPtr ProcessGroupRing::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter)
      .submit(alltoall_list_call(group->ranks, outputs, inputs, opts));
}

WorkPtr ProcessGroupRing::send(Tensors& tensors, int to, int tag) {
  const auto group = active_.current();
  return CallScope(*group->submitter).submit(send_call(group->ranks, tensors, to, tag));
}

WorkPtr ProcessGroupRing::recv(Tensors& tensors, int from, int tag) {
  const auto group = active_.current();
  return CallScope(*group->submitter).submit(recv_call(group->ranks, tensors, from, tag));
}

WorkPtr ProcessGroupRing::recvAnysource(Tensors& tensors, int tag) {
  const auto group = active_.current();
  return CallScope(*group->submitter).submit(recv_any_call(tensors, tag));
}

WorkPtr ProcessGroupRing::barrier(const c10d::BarrierOptions& opts) {
  const auto group = active_.current();
  return CallScope(*group->submitter).submit(barrier_call(opts));
}

void ProcessGroupRing::monitoredBarrier(const c10d::BarrierOptions& opts, bool all_ranks) {
  monitored_barrier(*active_.current()->communicator, opts, all_ranks);
}

WorkPtr ProcessGroupRing::allreduce_compressed(const at::Tensor& tensor,
                                               const c10d::AllreduceOptions& opts,
                                               const CompressionSpec& coding) {
  const auto group = active_.current();
  CallScope scope(*group->submitter);
  Call call = allreduce_call({tensor}, opts);
  group->compressor.apply(call, tensor, coding, {tensor});
  return scope.submit(std::move(call));
}

WorkPtr ProcessGroupRing::allreduce_of_state(const at::Tensor& tensor) {
  const auto group = active_.current();
  CallScope scope(*group->submitter);
  Call call = allreduce_call({tensor}, {});
  call.request.of_state = true;
  return scope.submit(std::move(call));
}

WorkPtr ProcessGroupRing::allgather_compressed(const at::Tensor& output, const at::Tensor& input,
                                               const c10d::AllgatherOptions& opts,
                                               const CompressionSpec& coding) {
  const auto group = active_.current();
  CallScope scope(*group->submitter);
  Call call = allgather_into_tensor_call(group->ranks, output, input, opts);
  group->compressor.apply(call, input, coding, {});
  return scope.submit(std::move(call));
}

WorkPtr ProcessGroupRing::reduce_scatter_compressed(const at::Tensor& output,
                                                    const at::Tensor& input,
                                                    const c10d::ReduceScatterOptions& opts,
                                                    const CompressionSpec& coding) {
  const auto group = active_.current();
  CallScope scope(*group->submitter);
  Call call = reduce_scatter_tensor_call(group->ranks, output, input, opts);
  group->compressor.apply(call, input, coding, {input, output});
  return scope.submit(std::move(call));
}

WorkPtr ProcessGroupRing::allreduce_with_codec_map(const Tensors& pieces,
                                                   const c10d::AllreduceOptions& opts,
                                                   std::shared_ptr<const CodecMap> map) {
  const auto group = active_.current();
  CallScope scope(*group->submitter);
  Call call = allreduce_list_call(pieces, "tensor", opts);
  call.request.codec_map = std::move(map);
  return scope.submit(std::move(call));
}

}  // namespace ringdist
