#include "torch/backend.h"

#include <algorithm>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "engine/admission.h"
#include "torch/monitored_barrier.h"
#include "torch/ops/all_to_all.h"
#include "torch/ops/barrier.h"
#include "torch/ops/move.h"
#include "torch/ops/point_to_point.h"
#include "torch/ops/reduce.h"
#include "torch/ops/sparse.h"
#include "torch/store.h"
#include "torch/work/interrupts.h"

namespace ringdist {
namespace {

constexpr int kShrinkAbort = 1;  // torch.distributed.distributed_c10d.SHRINK_ABORT

// Of a group that goes by another one's settings.
c10::intrusive_ptr<ProcessGroupRing> make_backend(std::shared_ptr<Communicator> communicator) {
  auto codecs = parse_coding("option codec", communicator->config().codec, communicator->size());
  throw_if(codecs.error());
  return c10::make_intrusive<ProcessGroupRing>(std::move(communicator), codecs.value());
}

}  // namespace

ProcessGroupRing::ProcessGroupRing(std::shared_ptr<Communicator> communicator, CodecPair codecs)
    : Backend(communicator->rank(), communicator->size()),
      communicator_(std::move(communicator)),
      place_{getRank(), getSize()},
      coder_(getSize(), std::move(codecs)),
      runner_(std::make_shared<CallRunner>(communicator_)),
      sparse_(communicator_) {}

// Dropped without shutdown(): what is in flight may still finish, so that others are not left
// waiting.
ProcessGroupRing::~ProcessGroupRing() = default;

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupRing::getBackendOptions() {
  auto options = c10::make_intrusive<c10d::Backend::Options>("ringdist");
  options->group_name = communicator_->name();
  options->timeout = communicator_->timeout();
  for (const int rank : communicator_->members())
    options->global_ranks_in_group.push_back(static_cast<uint64_t>(rank));
  return options;
}

void ProcessGroupRing::setTimeout(std::chrono::milliseconds timeout) {
  communicator_->set_timeout(timeout);
}

c10d::ErrorType ProcessGroupRing::getError() {
  const Error error = communicator_->failure();
  if (!error) return c10d::ErrorType::SUCCESS;
  if (error.kind() == ErrorKind::kTimeout) return c10d::ErrorType::TIMEOUT;
  const bool remote = !error.ranks().empty() && error.ranks()[0] != getRank();
  return remote ? c10d::ErrorType::REMOTE_ERROR : c10d::ErrorType::COMM_ERROR;
}

void ProcessGroupRing::abort() {
  communicator_->abort("rank " + std::to_string(getRank()) + " aborted the group");
}

void ProcessGroupRing::shutdown() {
  sparse_.wait_until_idle();
  communicator_->close();
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupRing::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  for (const int rank : ranks)
    if (rank < 0 || rank >= getSize())
      throw_error(invalid_argument("split_group", "ranks has rank " + std::to_string(rank) +
                                                      "; this group has 0 to " +
                                                      std::to_string(getSize() - 1)));
  if (std::ranges::find(ranks, getRank()) == ranks.end()) return nullptr;
  std::string name = "split";
  for (const int rank : ranks) name += " " + std::to_string(rank);
  // Other ranks may be split off under the same prefix of the store.
  const auto own = c10::make_intrusive<c10d::PrefixStore>(name, store);
  if (opts && !opts->group_name.empty()) name = opts->group_name;
  auto communicator = communicator_->subgroup(ranks, wrap_store(own, communicator_->context()),
                                              name, opts ? opts->timeout : kBackendDefaultTimeout);
  throw_if(communicator.error());
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
  if (flags & kShrinkAbort)
    (void)communicator_->freeze({ErrorKind::kAborted, "this rank has shrunk the group"});
  auto communicator = communicator_->without({excluded.begin(), excluded.end()});
  throw_if(communicator.error());
  return make_backend(communicator.value());
}

ProcessGroupRing::Next ProcessGroupRing::next_generation(std::chrono::milliseconds timeout) {
  std::optional<Result<Shrunk>> shrunk;
  (void)wait_in_slices(timeout, [&](std::optional<Milliseconds> slice) {
    shrunk = communicator_->shrink(slice.value_or(timeout));
    return shrunk->ok() || shrunk->error().kind() != ErrorKind::kTimeout;
  });
  throw_if(shrunk->error());
  return {make_backend(shrunk->value().group), shrunk->value()};
}

ProcessGroupRing::Joined ProcessGroupRing::join(std::shared_ptr<Context> context,
                                                CommunicatorOptions options, std::string job,
                                                std::chrono::milliseconds timeout) {
  Admission admission(std::move(context), std::move(options), std::move(job));
  std::optional<Result<Shrunk>> joined;
  const bool is_in = wait_in_slices(timeout, [&](std::optional<Milliseconds> slice) {
    joined = admission.wait(Clock::now() + slice.value_or(timeout));
    return joined.has_value();
  });
  const Error error = is_in ? joined->error() : admission.none_yet();
  throw_if(error ? error.prefixed("ringdist: join: ") : error);
  const Invitation& by = admission.invitation();
  return {{make_backend(joined->value().group), joined->value()}, by.name, by.note};
}

void ProcessGroupRing::startCoalescing() { runner_->begin_region(); }

WorkPtr ProcessGroupRing::endCoalescing() { return runner_->end_region(); }

#if RINGDIST_TORCH_HAS_ABORT_HOOKS
void ProcessGroupRing::registerAbortHook(int64_t hook_id, c10d::AbortHook hook) {
  communicator_->hooks()->failed.add(hook_id, std::move(hook));
}

void ProcessGroupRing::unregisterAbortHook(int64_t hook_id) {
  communicator_->hooks()->failed.remove(hook_id);
}
#endif

#if RINGDIST_TORCH_HAS_COMPLETION_HOOKS
void ProcessGroupRing::registerCompletionHook(int64_t hook_id, c10d::CompletionHook hook) {
  communicator_->hooks()->succeeded.add(hook_id,
                                        [hook = std::move(hook)](uint64_t key, float milliseconds) {
                                          hook({.completionKey = key, .duration_ms = milliseconds});
                                        });
}

void ProcessGroupRing::unregisterCompletionHook(int64_t hook_id) {
  communicator_->hooks()->succeeded.remove(hook_id);
}
#endif

WorkPtr ProcessGroupRing::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  return runner_->run([&] { return broadcast_call(place_, tensors, opts); });
}

WorkPtr ProcessGroupRing::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].layout() == at::kSparse)
    return allreduce_sparse(tensors, opts);
  return runner_->run([&] {
    Call call = allreduce_call(tensors, opts);
    coder_.apply_option(call);
    return call;
  });
}

WorkPtr ProcessGroupRing::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return runner_->run_started([&] { return sparse_.reduce(sparse_allreduce_call(tensors, opts)); });
}

WorkPtr ProcessGroupRing::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& opts) {
  return runner_->run_all(c10d::OpType::ALLREDUCE_COALESCED, [&] {
    auto calls = allreduce_calls(tensors, opts);
    for (Call& call : calls) coder_.apply_option(call);
    return calls;
  });
}

WorkPtr ProcessGroupRing::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  return runner_->run([&] { return reduce_call(place_, tensors, opts); });
}

WorkPtr ProcessGroupRing::allgather(TensorLists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& opts) {
  return runner_->run([&] { return allgather_call(place_, outputs, inputs, opts); });
}

WorkPtr ProcessGroupRing::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& opts) {
  return runner_->run([&] { return allgather_into_tensor_call(place_, output, input, opts); });
}

WorkPtr ProcessGroupRing::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
  return runner_->run_all(c10d::OpType::ALLGATHER_COALESCED,
                          [&] { return allgather_calls(place_, outputs, inputs, opts); });
}

WorkPtr ProcessGroupRing::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& opts) {
  return runner_->run_all(c10d::OpType::ALLGATHER_COALESCED, [&] {
    return allgather_into_tensor_calls(place_, outputs, inputs, opts);
  });
}

WorkPtr ProcessGroupRing::gather(TensorLists& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& opts) {
  return runner_->run([&] { return gather_call(place_, outputs, inputs, opts); });
}

#if RINGDIST_TORCH_HAS_GATHER_INTO_TENSOR
WorkPtr ProcessGroupRing::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                             const c10d::GatherOptions& opts) {
  return runner_->run([&] { return gather_into_tensor_call(place_, output, input, opts); });
}
#endif

WorkPtr ProcessGroupRing::scatter(Tensors& outputs, TensorLists& inputs,
                                  const c10d::ScatterOptions& opts) {
  return runner_->run([&] { return scatter_call(place_, outputs, inputs, opts); });
}

WorkPtr ProcessGroupRing::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                         const c10d::ReduceScatterOptions& opts) {
  return runner_->run([&] { return reduce_scatter_call(place_, outputs, inputs, opts); });
}

WorkPtr ProcessGroupRing::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& opts) {
  return runner_->run([&] {
    Call call = reduce_scatter_tensor_call(place_, output, input, opts);
    coder_.apply_option(call);
    return call;
  });
}

WorkPtr ProcessGroupRing::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& opts) {
  return runner_->run_all(reduce_scatter_coalesced<c10d::OpType>(), [&] {
    auto calls = reduce_scatter_tensor_calls(place_, outputs, inputs, opts);
    for (Call& call : calls) coder_.apply_option(call);
    return calls;
  });
}

WorkPtr ProcessGroupRing::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits,
                                        const c10d::AllToAllOptions& opts) {
  return runner_->run(
      [&] { return alltoall_call(place_, output, input, output_splits, input_splits, opts); });
}

WorkPtr ProcessGroupRing::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& opts) {
  return runner_->run([&] { return alltoall_list_call(place_, outputs, inputs, opts); });
}

WorkPtr ProcessGroupRing::send(Tensors& tensors, int to, int tag) {
  return runner_->run([&] { return send_call(place_, tensors, to, tag); });
}

WorkPtr ProcessGroupRing::recv(Tensors& tensors, int from, int tag) {
  return runner_->run([&] { return recv_call(place_, tensors, from, tag); });
}

WorkPtr ProcessGroupRing::recvAnysource(Tensors& tensors, int tag) {
  return runner_->run([&] { return recv_any_call(place_, tensors, tag); });
}

WorkPtr ProcessGroupRing::barrier(const c10d::BarrierOptions& opts) {
  return runner_->run([&] { return barrier_call(opts); });
}

void ProcessGroupRing::monitoredBarrier(const c10d::BarrierOptions& opts, bool all_ranks) {
  monitored_barrier(*communicator_, opts, all_ranks);
}

WorkPtr ProcessGroupRing::allreduce_coded(const at::Tensor& tensor,
                                          const c10d::AllreduceOptions& opts,
                                          const Coding& coding) {
  return runner_->run([&] {
    Call call = allreduce_call({tensor}, opts);
    coder_.apply(call, tensor, coding, {tensor});
    return call;
  });
}

WorkPtr ProcessGroupRing::allreduce_of_state(const at::Tensor& tensor) {
  return runner_->run([&] {
    Call call = allreduce_call({tensor}, {});
    call.request.of_state = true;
    return call;
  });
}

WorkPtr ProcessGroupRing::allgather_coded(const at::Tensor& output, const at::Tensor& input,
                                          const c10d::AllgatherOptions& opts,
                                          const Coding& coding) {
  return runner_->run([&] {
    Call call = allgather_into_tensor_call(place_, output, input, opts);
    coder_.apply(call, input, coding, {});
    return call;
  });
}

WorkPtr ProcessGroupRing::reduce_scatter_coded(const at::Tensor& output, const at::Tensor& input,
                                               const c10d::ReduceScatterOptions& opts,
                                               const Coding& coding) {
  return runner_->run([&] {
    Call call = reduce_scatter_tensor_call(place_, output, input, opts);
    coder_.apply(call, input, coding, {input, output});
    return call;
  });
}

WorkPtr ProcessGroupRing::allreduce_blocks(const Tensors& pieces,
                                           const c10d::AllreduceOptions& opts,
                                           std::shared_ptr<const BlockMap> blocks) {
  return runner_->run([&] {
    Call call = allreduce_list_call(pieces, "tensor", opts);
    call.request.blocks = std::move(blocks);
    return call;
  });
}

}  // namespace ringdist
