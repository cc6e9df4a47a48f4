#include "compress/low_rank.h"

#include <pthread.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/scoped_float_mode.h"
#include "kernel/cast.h"
#include "kernel/feedback.h"

namespace ringdist {
namespace {

// Least number of elements in a chunk. With fewer, the latency of the chunk's two ops exceeds the
// gain from their overlap with computation.
constexpr int64_t kChunk = 1 << 20;

// State of one matrix during a reduction.
struct Work {
  LowRankMatrix* matrix;
  std::vector<float> widened;  // the values in fp32; empty if they are fp32 already
  // This rank's right factor before the average.
  std::vector<float> own_right;
  bool silent = false;  // all values are zero: the rank sends zeros and keeps its residual

  // Returns the values in fp32: those of the matrix, or the widened copy.
  std::span<float> values() {
    const auto count = static_cast<size_t>(matrix->shape.count());
    if (matrix->dtype == DType::kFloat32) return {reinterpret_cast<float*>(matrix->values), count};
    return widened;
  }
  // Return the residual and the right factor, from the present ones to the new ones.
  ResidualSpan residual() {
    if (matrix->residual == nullptr) return {};
    float* const next = matrix->next_residual ? matrix->next_residual : matrix->residual;
    return {matrix->residual, next, static_cast<size_t>(matrix->shape.count())};
  }
  std::span<const float> right() { return {rights().from, rights().count}; }
  std::span<const float> residual_values() { return {residual().from, residual().count}; }
  ResidualSpan rights() {
    float* const next = matrix->next_right ? matrix->next_right : matrix->right;
    return {matrix->right, next, static_cast<size_t>(matrix->shape.right())};
  }
};

// Factors of a chunk. The op that averages them holds them, too, because its sends may still drain
// after it has failed.
using Factors = std::shared_ptr<std::vector<float>>;

// Several matrices with one allreduce for all left factors, and one for all right factors. start(),
// turn() and finish() are called in this order.
class Chunk {
 public:
  Chunk(std::shared_ptr<Communicator> group, std::span<LowRankMatrix> matrices)
      : group_(std::move(group)) {
    for (LowRankMatrix& matrix : matrices) work_.push_back({&matrix, {}, {}});
  }

  // Computes the left factors and submits their average.
  Error start() {
    for (Work& work : work_) {
      const MatrixShape& shape = work.matrix->shape;
      widen_values(work);
      const std::span<float> left = grow(lefts_, shape.left());
      work.silent = all_zero(work.values());
      if (!work.silent)
        multiply_right(shape, work.values(), work.residual_values(), work.right(), left);
    }
    return submit(lefts_);
  }

  // Waits for the left factors, computes the right ones and submits their average. All ranks
  // orthonormalise the same mean, so their left factors have the same bits.
  Error turn() {
    if (Error error = wait()) return error;
    size_t at = 0;
    for (Work& work : work_) {
      const MatrixShape& shape = work.matrix->shape;
      const std::span<float> left = take(lefts_, at, shape.left());
      orthonormalise(shape, left);
      const std::span<float> right = grow(rights_, shape.right());
      if (!work.silent) multiply_left(shape, work.values(), work.residual_values(), left, right);
      work.own_right.assign(right.begin(), right.end());
    }
    return submit(rights_);
  }

  // Waits for the right factors and writes the averages.
  Error finish() {
    if (Error error = wait()) return error;
    size_t left_at = 0;
    size_t right_at = 0;
    for (Work& work : work_) {
      const MatrixShape& shape = work.matrix->shape;
      const auto left = take(lefts_, left_at, shape.left());
      const auto right = take(rights_, right_at, shape.right());
      if (all_finite(left) && all_finite(right))
        write(work, left, right);
      else
        poison(work);
    }
    return {};
  }

 private:
  // Converts the values to fp32, if they are not fp32.
  static void widen_values(Work& work) {
    if (work.matrix->dtype == DType::kFloat32) return;
    work.widened.resize(static_cast<size_t>(work.matrix->shape.count()));
    widen(work.matrix->dtype, stored(work), work.widened);
  }

  // Returns the memory of the values in their own dtype.
  static Bytes stored(const Work& work) {
    const auto count = static_cast<size_t>(work.matrix->shape.count());
    return {work.matrix->values, count * dtype_size(work.matrix->dtype)};
  }

  // Writes the average, the new residual and the new right factor.
  void write(Work& work, std::span<const float> left, std::span<const float> right) {
    const ResidualSpan residual = work.residual();
    reconstruct(work.matrix->shape, left, right, work.own_right, work.values(), residual);
    const ResidualSpan rights = work.rights();
    rights.keep();  // columns of zeros keep their old direction
    keep_directions(work.matrix->shape, right, {rights.to, rights.count});
    if (work.matrix->dtype == DType::kFloat32) return;
    narrow(work.matrix->dtype, work.widened, stored(work));
    if (residual.empty()) return;
    // Rounding to the dtype loses something, too, which is added to the residual.
    std::vector<float> back(work.widened.size());
    widen(work.matrix->dtype, stored(work), back);
    add_loss({residual.to, residual.to, residual.count}, /*keep=*/true, 1.0f, work.widened, back);
  }

  // Writes NaN to the whole matrix, because some rank had a non-finite value. The residual and the
  // right factor keep their values.
  static void poison(Work& work) {
    const std::span<float> values = work.values();
    std::fill(values.begin(), values.end(), std::numeric_limits<float>::quiet_NaN());
    if (work.matrix->dtype != DType::kFloat32) narrow(work.matrix->dtype, values, stored(work));
    work.residual().keep();
    work.rights().keep();
  }

  // Appends `count` zeros to the factors and returns them.
  static std::span<float> grow(const Factors& factors, int64_t count) {
    const size_t at = factors->size();
    factors->resize(at + static_cast<size_t>(count));
    return std::span(*factors).subspan(at);
  }
  // Returns the next `count` factors and advances `at`.
  static std::span<float> take(const Factors& factors, size_t& at, int64_t count) {
    const auto out = std::span(*factors).subspan(at, static_cast<size_t>(count));
    at += static_cast<size_t>(count);
    return out;
  }

  // Submits the average of all factors of the chunk as one op.
  Error submit(const Factors& factors) {
    OpRequest request;
    request.kind = Collective::kAllreduce;
    request.reduce_op = ReduceOp::kAvg;
    request.count = static_cast<int64_t>(factors->size());
    request.output = Buffer(sizeof(float));
    request.output.append(factors->data(), request.count);
    request.keep_alive = factors;
    auto op = group_->submit(std::move(request), /*will_wait=*/false);
    if (!op.ok()) return op.error();
    op_ = op.value();
    return {};
  }

  Error wait() {
    group_->wait(*op_, std::nullopt);
    return op_->error();
  }

  const std::shared_ptr<Communicator> group_;
  std::vector<Work> work_;
  const Factors lefts_ = std::make_shared<std::vector<float>>();
  const Factors rights_ = std::make_shared<std::vector<float>>();
  std::shared_ptr<Op> op_;
};

// Cuts the matrices into chunks of at least kChunk elements; the last one has the rest.
std::vector<Chunk> cut(const std::shared_ptr<Communicator>& group,
                       std::span<LowRankMatrix> matrices) {
  std::vector<Chunk> out;
  size_t begin = 0;
  int64_t count = 0;
  for (size_t i = 0; i < matrices.size(); ++i) {
    count += matrices[i].shape.count();
    if (count < kChunk && i + 1 < matrices.size()) continue;
    out.emplace_back(group, matrices.subspan(begin, i + 1 - begin));
    begin = i + 1;
    count = 0;
  }
  return out;
}

// Runs each stage for all chunks before the next stage, so that one chunk computes while the
// factors of others travel.
Error reduce_all(const std::shared_ptr<Communicator>& group, std::span<LowRankMatrix> matrices) {
  std::vector<Chunk> chunks = cut(group, matrices);
  for (Error (Chunk::*stage)() : {&Chunk::start, &Chunk::turn, &Chunk::finish})
    for (Chunk& chunk : chunks)
      if (Error error = (chunk.*stage)()) return error;
  return {};
}

}  // namespace

LowRankReducer::LowRankReducer(std::shared_ptr<Communicator> group)
    : state_(new State(std::move(group))), thread_([state = state_] { run(*state); }) {
  pthread_setname_np(thread_.native_handle(), "ringdist-psgd");
}

LowRankReducer::~LowRankReducer() {
  if (state_->group->context().forked()) {
    thread_.detach();
    return;
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  thread_.join();
  delete state_;
}

void LowRankReducer::reduce(std::vector<LowRankMatrix> matrices, std::function<void(Error)> done) {
  {
    std::lock_guard lock(state_->mutex);
    state_->jobs.push_back({std::move(matrices), std::move(done)});
  }
  state_->changed.notify_all();
}

void LowRankReducer::run(State& state) {
  const ScopedFloatMode mode;
  for (;;) {
    Job job;
    {
      std::unique_lock lock(state.mutex);
      state.changed.wait(lock, [&] { return state.stopping || !state.jobs.empty(); });
      if (state.jobs.empty()) return;
      job = std::move(state.jobs.front());
      state.jobs.pop_front();
    }
    Error error;
    try {
      error = reduce_all(state.group, job.matrices);
    } catch (...) {
      // The other ranks wait for ops of this job, which later ops must not be taken for.
      error = current_exception_error();
      state.group->fail(error);
    }
    job.done(error);
  }
}

std::vector<float> first_right(const MatrixShape& shape) {
  std::vector<float> out(static_cast<size_t>(shape.right()));
  draw_noise(out.size(), out);
  return out;
}

}  // namespace ringdist
