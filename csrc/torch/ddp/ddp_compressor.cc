#include "torch/ddp/ddp_compressor.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>

#include "kernel/find_nan.h"
#include "torch/base/errors.h"
#include "torch/base/tensors.h"
#include "torch/ddp/device_memory.h"
#include "torch/ddp/low_rank_sample.h"
#include "torch/ddp/low_rank_tensors.h"
#include "torch/ddp/pending_bucket.h"
#include "torch/ops/call_compressor.h"
#include "torch/work/future.h"
#include "torch/work/interrupts.h"

namespace ringdist {
namespace {

c10d::AllreduceOptions average_options() {
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::AVG;
  options.asyncOp = true;
  return options;
}

constexpr const char* kBucketName = "the bucket of gradients";

// Sets `ended` when the backward pass ends without an exception. DDP may leave out buckets that no
// rank used, even the last one. Then the end of the backward pass completes the step.
void watch_backward(std::shared_ptr<std::atomic<bool>> ended) {
  if (torch::autograd::get_current_graph_task_id() < 0)
    return;  // a bucket of join(): all buckets come
  torch::autograd::Engine::get_default_engine().queue_callback(
      [ended = std::move(ended)] { *ended = true; });
}

Now now_of(std::shared_ptr<BucketClock> clock) {
  return [clock = std::move(clock)] { return clock->now(); };
}

// Returns functions for `probe` itself. Waits react to Ctrl-C.
LinkProbe::Delegate tools_of(std::shared_ptr<Communicator> group,
                             std::shared_ptr<BucketClock> clock, CostProbe& probe) {
  using Run = Result<std::function<void()>>;
  return {[group = std::move(group)](const Op& op) {
            wait_in_slices(std::nullopt, [&](auto slice) { return group->wait(op, slice); });
          },
          now_of(std::move(clock)),
          [&probe](const MatrixShape& shape, GradientMemory& memory) -> Run {
            const auto device = device_of(memory);
            if (!device) return benchmark_on_host(shape, memory);
            if (Error error = check_devices_alike(probe, *device)) return error;
            return benchmark_low_rank(shape, *device);
          }};
}

// Returns the number of elements in the bucket, where complex gradients are pairs of real numbers.
int64_t count_in(const at::Tensor& buffer, const at::Tensor& parameter) {
  return parameter.numel() * (parameter.is_complex() && !buffer.is_complex() ? 2 : 1);
}

// Returns the order in which the parameter's elements lie in memory; gradients in a bucket have the
// same.
MemoryOrder order_of(const at::Tensor& parameter) {
  const bool strided = parameter.is_non_overlapping_and_dense() && !parameter.is_contiguous();
  return strided ? MemoryOrder(parameter.sizes().vec(), parameter.strides().vec())
                 : MemoryOrder(parameter.sizes().vec());
}

// The info holds the tensor, so that no other tensor gets its address.
ParameterInfo info_of(const at::Tensor& parameter) {
  return {parameter.unsafeGetTensorImpl(), std::make_shared<at::Tensor>(parameter),
          order_of(parameter), parameter.is_complex(),
          parameter.is_cpu() ? &host_memory() : &device_memory(parameter.device())};
}

CompressionGroup group_of(const ProcessGroupRing& group) {
  return {group.getSize(), group.getRank(),
          group.communicator()->config().deterministic == "layout", kMinCompressed};
}

GradientCompressorDelegate owner_of(AtStep at_step, DdpCompressor::Buckets buckets,
                                    std::shared_ptr<BucketClock> clock) {
  GradientCompressorDelegate out{std::move(at_step), watch_backward,
                                 [](const std::string& text) { TORCH_WARN_ONCE(text); },
                                 now_of(std::move(clock))};
  if (buckets == DdpCompressor::Buckets::kAll)
    out.watch_pass = [](const std::shared_ptr<std::atomic<bool>>&) {};
  return out;
}

}  // namespace

LowRankReducer& BucketReducer::reducer() {
  if (!reducer_) {
    auto duplicate = group_->communicator()->duplicate("/low_rank");
    throw_if(duplicate.error());
    reducer_ = std::make_unique<LowRankReducer>(duplicate.value());
  }
  return *reducer_;
}

DeviceLowRank& BucketReducer::streamed(c10::Device device) {
  if (!streamed_) {
    throw_if(check_devices_alike(probe_, device));
    streamed_ = std::make_unique<DeviceLowRank>(
        [group = group_](const at::Tensor& factors) {
          return group->allreduce_with_codec_map({factors}, average_options(), nullptr);
        },
        [](const at::Tensor& bucket, const std::vector<LowRankInput>& inputs) {
          return std::make_unique<LowRankTensors>(bucket, inputs);
        });
  }
  return *streamed_;
}

void BucketReducer::check_not_forked() const {
  if (group_->communicator()->context().forked())
    throw_error(Error(ErrorKind::kAborted,
                      "ringdist: compress: this process was forked from one that had created the "
                      "group; its connections belong to the parent"));
}

WorkPtr BucketReducer::run_rest(const at::Tensor& buffer, const PlannedBucket& planned) {
  const BucketPlan& plan = planned.plan;
  std::vector<at::Tensor> pieces;
  for (const ParameterSlice& piece : plan.pieces)
    pieces.push_back(buffer.narrow(0, piece.offset, piece.count));
  if (pieces.empty()) pieces.push_back(buffer);  // an empty bucket, or one of float64
  plan.codec_map->keep_alive = planned.keep_alive;
  return group_->allreduce_with_codec_map(pieces, average_options(),
                                          plan.coded ? plan.codec_map : nullptr);
}

BucketReducer::Running BucketReducer::run(const at::Tensor& buffer, PlannedBucket planned) {
  const bool on_host = buffer.is_cpu();
  if (planned.low_rank.empty() && planned.plan.pieces.size() <= 1) {
    auto work = run_rest(buffer, planned);
    auto future = work->getFuture();
    if (on_host) return {future, std::make_shared<PendingFutureBucket>(future)};
    return {future, std::make_shared<PendingWorkBucket>(PendingWorkBucket::Works{std::move(work)},
                                                        nullptr, future)};
  }
  check_not_forked();
  return on_host ? run_on_host(buffer, std::move(planned))
                 : run_on_device(buffer, std::move(planned));
}

BucketReducer::Running BucketReducer::run_on_device(const at::Tensor& buffer,
                                                    PlannedBucket planned) {
  DeviceLowRank::StartRest rest;
  if (!planned.plan.pieces.empty())
    rest = [&](const PlannedBucket& bucket) { return run_rest(buffer, bucket); };
  return streamed(buffer.device()).run(buffer, std::move(planned), rest);
}

// The Future is complete when the low-rank averages and the allreduce of the rest are.
BucketReducer::Running BucketReducer::run_on_host(const at::Tensor& buffer, PlannedBucket planned) {
  const bool rest = !planned.plan.pieces.empty();
  auto join = std::make_shared<CombinedFuture>(std::vector{buffer}, rest ? 2 : 1);
  std::vector<LowRankMatrix> matrices;
  auto dtype = to_dtype("compress", "the bucket of gradients", buffer, ReduceOp::kAvg);
  throw_if(dtype.error());
  for (const LowRankInput& input : planned.low_rank) {
    const ParameterSlice& slice = input.matrix.slice;
    auto* values =
        static_cast<std::byte*>(buffer.data_ptr()) + slice.offset * buffer.element_size();
    matrices.push_back({input.matrix.shape, dtype.value(), values, slice.residual,
                        input.right.data(), slice.next, input.next_right.data()});
  }
  LowRankReducer& low_rank_reducer = reducer();
  if (rest) CombinedFuture::follow(join, *run_rest(buffer, planned)->getFuture());
  // Callbacks of the Future may wait for other buckets, so the reducer's thread does not run them.
  auto communicator = group_->communicator();
  low_rank_reducer.reduce(std::move(matrices), [join, communicator, buffer,
                                                planned = std::move(planned)](const Error& error) {
    communicator->context().pool().run_callbacks(
        [join, buffer, error] { join->arrive(error ? to_exception(error) : nullptr); });
  });
  return {join->future(), std::make_shared<PendingFutureBucket>(join->future())};
}

DdpCompressor::DdpCompressor(c10::intrusive_ptr<ProcessGroupRing> group, CompressionOptions options,
                             AtStep at_step, Buckets buckets)
    : group_(std::move(group)),
      made_for_(group_->communicator()),
      probe_(made_for_, tools_of(made_for_, clock_, probe_)),
      work_(group_, probe_),
      compressor_(
          value_of(GradientCompressor::create(probe_, group_of(*group_), std::move(options),
                                              owner_of(std::move(at_step), buckets, clock_)))) {}

void DdpCompressor::add_parameter(const at::Tensor& tensor, std::string name, ParameterRule rule) {
  throw_if(compressor_->add_parameter(info_of(tensor), std::move(name), std::move(rule)));
}

FuturePtr DdpCompressor::run(c10d::GradBucket& bucket) {
  if (made_for_->was_replaced() || group_->communicator() != made_for_)
    throw_error({ErrorKind::kAborted, "ringdist: this hook compresses for group '" +
                                          made_for_->name() +
                                          "', which was shrunk or reconfigured: give the model a "
                                          "new DistributedDataParallel, and that "
                                          "a hook of its own by torch_ringdist.ddp.compress()"});
  clock_->begin(bucket.getBufferRef().device());
  try {
    throw_if(compressor_->begin(bucket.getIndex()));
    const Bucket described = describe(bucket);
    if (made_for_->config().nan_check != 0 && bucket.getBufferRef().is_cpu()) check_nan(described);
    auto running = work_.run(bucket.getBuffer(), value_of(compressor_->plan(described)));
    throw_if(compressor_->add(described, running.pending));
    return running.future;
  } catch (...) {
    compressor_->fail();
    throw;
  }
}

void DdpCompressor::check_nan(const Bucket& bucket) {
  const int64_t found = find_nan(bucket.dtype, bucket.values);
  if (found < 0) return;
  int64_t begin = 0;
  size_t part = 0;
  while (part + 1 < bucket.parts.size() && found >= begin + bucket.parts[part].count)
    begin += bucket.parts[part++].count;
  const auto name =
      compressor_->name_of(bucket.parts[part].key, [&] { return bucket.describe(part); });
  const uint64_t next = made_for_->sequence_number() + 1;
  throw_if(made_for_->fail_for_nan("element " + std::to_string(found - begin) +
                                   " of the gradient of '" + value_of(name) +
                                   "', for all_reduce #" + std::to_string(next) + ","));
}

Bucket DdpCompressor::describe(c10d::GradBucket& bucket) {
  const at::Tensor& buffer = bucket.getBufferRef();
  const auto parameters = bucket.getParameters();
  const auto describe_one = [parameters](size_t i) { return info_of(parameters[i]); };
  if (!parameters.empty() && buffer.layout() != at::kStrided) {
    const auto name =
        compressor_->name_of(parameters[0].unsafeGetTensorImpl(), [&] { return describe_one(0); });
    throw_error(refusal_to_compress(
        ErrorKind::kNotSupported,
        "parameter '" + value_of(name) + "' has a sparse gradient; only dense ones are reduced"));
  }
  throw_if(check_tensor("compress", kBucketName, buffer, /*written=*/true));
  Bucket out;
  out.index = bucket.getIndex();
  out.last = bucket.isLast();
  out.dtype = value_of(to_dtype("compress", kBucketName, buffer, ReduceOp::kAvg));
  out.count = buffer.numel();
  out.values = {static_cast<std::byte*>(buffer.data_ptr()), buffer.nbytes()};
  for (const at::Tensor& parameter : parameters)
    out.parts.push_back({parameter.unsafeGetTensorImpl(), count_in(buffer, parameter)});
  out.describe = describe_one;
  return out;
}

DdpCompressor::State DdpCompressor::state(bool committed) {
  const CompressionState state =
      committed ? compressor_->state_if_committed() : compressor_->state();
  State out{state.steps, state.scale, {}};
  for (const auto& [name, values] : state.residuals) {
    const at::Tensor tensor =
        at::empty(std::ssize(values), at::TensorOptions(at::kFloat).device(at::kCPU));
    std::ranges::copy(values, tensor.mutable_data_ptr<float>());
    out.residuals.emplace_back(name, tensor);
  }
  return out;
}

void DdpCompressor::load(const State& state) {
  CompressionState plain{state.steps, state.scale, {}};
  for (const auto& [name, tensor] : state.residuals) {
    const float* values = tensor.const_data_ptr<float>();
    plain.residuals.emplace_back(name, std::vector<float>(values, values + tensor.numel()));
  }
  throw_if(compressor_->load(plain));
}

}  // namespace ringdist
