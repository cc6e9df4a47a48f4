#include "torch/sparse_reducer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "torch/base/errors.h"
#include "torch/base/tensors.h"
#include "torch/work/base_work.h"

namespace ringdist {

// The Work of a sparse allreduce. The thread that runs the second round ends it.
class SparseWork final : public GroupWork {
 public:
  SparseWork(const std::shared_ptr<Communicator>& group, const at::Tensor& tensor, uint64_t number);

  std::vector<at::Tensor> result() override { return {tensor_}; }

  // Called once, with the exception that ended the op. Null means that `tensor` has the result.
  void end(const std::exception_ptr& error);

 private:
  std::string describe() const override { return "a sparse all_reduce"; }
  bool ended() override { return isCompleted(); }
  bool wait_until_ended(std::optional<Milliseconds> limit) override;
  FuturePtr make_future() override { return make_future_of_tensors(); }

  const at::Tensor tensor_;
};

namespace {

constexpr size_t kMaxDimensions = 64;
// Description of a rank's call: dtype, reduction, sparse dimensions, all dimensions, their sizes
// and the number of entries.
constexpr size_t kSizes = 4;
constexpr size_t kEntries = kSizes + kMaxDimensions;
using Outline = std::array<int64_t, kEntries + 1>;

Outline outline_of(const SparseCall& call, int64_t entries) {
  const at::Tensor& tensor = call.tensor;
  Outline out{static_cast<int64_t>(call.dtype), static_cast<int64_t>(call.op), tensor.sparse_dim(),
              tensor.dim()};
  std::ranges::copy(tensor.sizes(), out.begin() + kSizes);
  out[kEntries] = entries;
  return out;
}

// Formats the part of an outline that all ranks must have alike.
std::string describe(const Outline& shape) {
  std::string out = std::string(dtype_name(static_cast<DType>(shape[0]))) + "[";
  for (size_t i = 0; i < static_cast<size_t>(shape[3]); ++i)
    out += (i ? ", " : "") + std::to_string(shape[kSizes + i]);
  return out + "] with " + std::to_string(shape[2]) + " sparse dimensions for " +
         std::string(reduce_op_name(static_cast<ReduceOp>(shape[1])));
}

Error check_alike(const std::vector<Outline>& shapes) {
  for (size_t rank = 1; rank < shapes.size(); ++rank)
    if (!std::equal(shapes[0].begin(), shapes[0].begin() + kEntries, shapes[rank].begin()))
      return Error(ErrorKind::kMismatch,
                   "ringdist: all_reduce: ranks disagree on a sparse tensor: rank 0 gave " +
                       describe(shapes[0]) + ", rank " + std::to_string(rank) + " gave " +
                       describe(shapes[rank]));
  return {};
}

// Request to gather one tensor from all ranks, in parts of different sizes.
OpRequest gather_parts(const at::Tensor& input, const at::Tensor& output, DType dtype,
                       std::vector<int64_t> parts, Milliseconds timeout) {
  OpRequest out;
  out.kind = Collective::kAllgather;
  out.dtype = dtype;
  out.count = *std::ranges::max_element(parts);
  out.output_parts = std::move(parts);
  out.input = Buffer(dtype_size(dtype));
  out.output = Buffer(dtype_size(dtype));
  append(out.input, input);
  append(out.output, output);
  out.timeout = timeout;
  out.keep_alive = std::make_shared<std::vector<at::Tensor>>(std::vector{input, output});
  return out;
}

// Runs the requests at the same time, and throws the first error. The others then go on; each holds
// its own memory.
void run(Communicator& group, std::vector<OpRequest> requests) {
  std::vector<std::shared_ptr<Op>> ops;
  for (OpRequest& request : requests) {
    auto op = group.submit(std::move(request), /*will_wait=*/true);
    throw_if(op.error());
    ops.push_back(op.value());
  }
  for (const auto& op : ops) {
    group.wait(*op, std::nullopt);
    throw_if(op->error());
  }
}

at::Tensor add_up(const at::Tensor& indices, const at::Tensor& values, at::IntArrayRef sizes) {
  return at::sparse_coo_tensor(indices, values, sizes, values.options().layout(at::kSparse))
      .coalesce();
}

// Averages int64 values over `ranks`, truncated toward zero. Sums may need more than 64 bits, so
// the upper and the lower halves are added up separately.
at::Tensor average_longs(const at::Tensor& indices, const at::Tensor& values, at::IntArrayRef sizes,
                         int64_t ranks) {
  constexpr int64_t kBase = int64_t{1} << 32;
  at::Tensor out = add_up(indices, at::floor_divide(values, kBase), sizes);
  const at::Tensor low = add_up(indices, at::remainder(values, kBase), sizes)._values();
  // The sum is high * 2^32 + (low mod 2^32). Its quotient is rounded down, and then up again if it
  // is negative and not whole.
  const at::Tensor high = out._values() + at::floor_divide(low, kBase);
  const at::Tensor quotient = at::floor_divide(high, ranks);
  const at::Tensor rest = at::remainder(high, ranks) * kBase + at::remainder(low, kBase);
  const at::Tensor rounds_up = (high < 0).logical_and(at::remainder(rest, ranks) != 0);
  out._values().copy_(quotient * kBase + at::floor_divide(rest, ranks) + rounds_up);
  return out;
}

// Adds up in fp32 for fp16 and bf16, as the kernels do.
at::Tensor combine(const at::Tensor& indices, const at::Tensor& values, at::IntArrayRef sizes,
                   ReduceOp op, int64_t ranks) {
  const bool averages = op == ReduceOp::kAvg;
  if (averages && at::isIntegralType(values.scalar_type(), /*includeBool=*/false))
    return average_longs(indices, values.to(at::kLong), sizes, ranks);
  const bool half = at::isReducedFloatingType(values.scalar_type());
  at::Tensor sum = add_up(indices, half ? values.to(at::kFloat) : values, sizes);
  if (averages) sum._values().div_(ranks);
  return sum;
}

}  // namespace

// One call, from its first round to its end.
struct SparseReducer::Job {
  SparseCall call;
  at::Tensor indices;                            // int64[sparse dimensions, entries], contiguous
  at::Tensor values;                             // [entries, dense dimensions...], contiguous
  std::shared_ptr<std::vector<Outline>> shapes;  // from all ranks, after `first` has ended
  std::shared_ptr<Op> first;
  c10::intrusive_ptr<SparseWork> work;
};

SparseReducer::SparseReducer(std::shared_ptr<Communicator> group)
    : state_(std::make_shared<State>(std::move(group))) {}

c10::intrusive_ptr<c10d::Work> SparseReducer::reduce(const SparseCall& call) {
  const at::Tensor& tensor = call.tensor;
  if (tensor.dim() > static_cast<int64_t>(kMaxDimensions))
    throw_error(invalid_argument("all_reduce", "a sparse tensor of more than 64 dimensions"));
  const at::Tensor entries = tensor.detach().coalesce();
  auto job = std::make_shared<Job>();
  job->call = call;
  job->indices = entries._indices().contiguous();
  job->values = entries._values().contiguous();
  job->shapes = std::make_shared<std::vector<Outline>>(state_->group->size());
  const auto mine = std::make_shared<Outline>(outline_of(call, entries._nnz()));
  OpRequest request;
  request.kind = Collective::kAllgather;
  request.dtype = DType::kInt64;
  request.count = static_cast<int64_t>(mine->size());
  request.input = Buffer(sizeof(int64_t));
  request.input.append(mine->data(), request.count);
  request.output = Buffer(sizeof(int64_t));
  for (Outline& shape : *job->shapes) request.output.append(shape.data(), request.count);
  request.timeout = call.timeout;
  request.output_staged = true;
  request.keep_alive = std::make_shared<std::pair<std::shared_ptr<Outline>, decltype(job->shapes)>>(
      mine, job->shapes);
  // Jobs are queued in the order of their first rounds.
  std::lock_guard lock(state_->mutex);
  auto first = state_->group->submit(std::move(request), /*will_wait=*/false);
  throw_if(first.error());
  job->first = first.value();
  job->work = c10::make_intrusive<SparseWork>(state_->group, tensor, job->first->number);
  const c10::intrusive_ptr<c10d::Work> work = job->work;
  state_->jobs.push_back(std::move(job));
  if (!state_->working) {
    state_->group->context().pool().run([state = state_] { SparseReducer::work(state); });
    state_->working = true;  // not before, as run() may throw; the thread waits for the mutex
  }
  return work;
}

void SparseReducer::work(const std::shared_ptr<State>& state) {
  while (true) {
    std::shared_ptr<Job> job;
    {
      std::lock_guard lock(state->mutex);
      if (state->jobs.empty()) {
        state->working = false;
        state->idle.notify_all();
        return;
      }
      job = std::move(state->jobs.front());
      state->jobs.pop_front();
    }
    std::exception_ptr error;
    try {
      finish(*state, *job);
    } catch (...) {
      error = std::current_exception();
    }
    // Callbacks run on another thread, since they may wait for later jobs.
    state->group->context().pool().run_callbacks([work = job->work, error] { work->end(error); });
  }
}

// The second round gathers indices and values as two ops with one part per rank.
void SparseReducer::finish(State& state, Job& job) {
  state.group->wait(*job.first, std::nullopt);
  throw_if(job.first->error());
  throw_if(check_alike(*job.shapes));
  if (!state.second) {
    auto second = state.group->duplicate("/sparse");
    throw_if(second.error());
    state.second = second.value();
  }
  const int64_t dimensions = job.indices.size(0);
  const int64_t row = std::accumulate(job.values.sizes().begin() + 1, job.values.sizes().end(),
                                      int64_t{1}, std::multiplies<>());
  int64_t entries = 0;
  std::vector<int64_t> index_parts;
  std::vector<int64_t> value_parts;
  for (const Outline& shape : *job.shapes) {
    entries += shape[kEntries];
    index_parts.push_back(dimensions * shape[kEntries]);
    value_parts.push_back(row * shape[kEntries]);
  }
  const at::Tensor flat = at::empty({dimensions * entries}, job.indices.options());
  auto sizes = job.values.sizes().vec();
  sizes[0] = entries;
  const at::Tensor values = at::empty(sizes, job.values.options());
  run(*state.second,
      {gather_parts(job.indices, flat, DType::kInt64, index_parts, job.call.timeout),
       gather_parts(job.values, values, job.call.dtype, std::move(value_parts), job.call.timeout)});
  std::vector<at::Tensor> indices;  // by rank: [dimensions, entries of the rank]
  for (const at::Tensor& part : flat.split_with_sizes(index_parts))
    indices.push_back(dimensions > 0 ? part.view({dimensions, -1})
                                     : part.view({0, (*job.shapes)[indices.size()][kEntries]}));
  const c10::NoGradGuard no_grad;
  const at::Tensor sum = combine(at::cat(indices, 1), values, job.call.tensor.sizes(), job.call.op,
                                 static_cast<int64_t>(job.shapes->size()));
  write_result(job.call.tensor, sum.to(job.call.tensor.scalar_type()));
}

bool SparseReducer::wait_until_idle(TimePoint deadline) {
  // The thread that works belongs to the parent.
  if (state_->group->context().forked()) return true;
  std::unique_lock lock(state_->mutex);
  return state_->idle.wait_until(lock, deadline, [this] { return !state_->working; });
}

SparseWork::SparseWork(const std::shared_ptr<Communicator>& group, const at::Tensor& tensor,
                       uint64_t number)
    : GroupWork(group, number, std::make_shared<Completion>(group->hooks(), 1),
                c10d::OpType::_ALLREDUCE_SPARSE, "ringdist:sparse_all_reduce",
                std::vector<at::Tensor>{tensor}),
      tensor_(tensor) {}

bool SparseWork::wait_until_ended(std::optional<Milliseconds> limit) {
  std::unique_lock lock(mutex_);
  const auto is_completed = [this] { return completed_; };
  if (limit) return cv_.wait_for(lock, *limit, is_completed);
  cv_.wait(lock, is_completed);
  return true;
}

void SparseWork::end(const std::exception_ptr& error) {
  // First, so that a getFuture() after a wait() returns one that is marked.
  const FuturePtr future = getFuture();
  // Before the Future is marked, since its callbacks may wait for this Work, or in a barrier.
  finish(error);
  group().output_delivered(getSequencenumber());
  if (!error) report_success();
  mark(*future, error, {tensor_});
}

}  // namespace ringdist
