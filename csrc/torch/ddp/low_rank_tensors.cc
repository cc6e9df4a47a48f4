#include "torch/ddp/low_rank_tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <tuple>

#include "torch/ddp/device_memory.h"

namespace ringdist {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// Relative to a column's largest element. It is far above rounding and far below a gradient's
// information.
constexpr float kNoise = 1e-6F;

// Makes products use fp32, whatever the caller has set: the residual would not include losses of
// TF32. Also turns off autocast, in which hooks run if the backward pass does.
class PlainMath {
  const at::NoGradGuard no_grad_;
  const at::NoTF32Guard no_tf32_;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

at::TensorOptions float_options(const at::Tensor& bucket) {
  return at::TensorOptions(at::kFloat).device(bucket.device());
}

// Returns `count` numbers in [-1, 1). They are exact, and so the same on all ranks.
at::Tensor noise(int64_t count, const at::TensorOptions& options) {
  constexpr int64_t kMask = (int64_t{1} << 31) - 1;
  at::Tensor x = at::arange(1, count + 1, options.dtype(at::kLong));
  x.mul_(1103515245).bitwise_and_(kMask);
  x.bitwise_xor_(x.bitwise_right_shift(15));
  x.mul_(69069).bitwise_and_(kMask);
  return x.to(at::kFloat).mul_(0x1p-30F).sub_(1);
}

at::Tensor largest(const at::Tensor& rows) { return rows.abs().amax(1, /*keepdim=*/true); }

// Returns orthonormal rows that span the rows of `left`, at any magnitude. Noise determines the
// rows that depend on others or are zero, as on the host. If `left` is not finite, the result is
// not, either.
at::Tensor orthonormal(const at::Tensor& left, const at::Tensor& noise) {
  const at::Tensor finite = left.isfinite().all();
  const at::Tensor most = largest(left);
  const at::Tensor scaled = at::where(finite.logical_and(most.gt(0)), left / most, 0.0F);
  const at::Tensor q = std::get<0>(at::linalg_qr(scaled.add(noise, kNoise).t(), "reduced"));
  return at::where(finite, q.t(), kNaN);
}

}  // namespace

LowRankTensors::LowRankTensors(const at::Tensor& bucket, const std::vector<LowRankInput>& inputs) {
  int64_t left = 0;
  int64_t right = 0;
  for (const LowRankInput& input : inputs) {
    left += input.matrix.shape.left();
    right += input.matrix.shape.right();
  }
  lefts_ = at::empty({left}, float_options(bucket));
  rights_ = at::empty({right}, float_options(bucket));
  left = right = 0;
  for (const LowRankInput& input : inputs) {
    const ParameterSlice& slice = input.matrix.slice;
    Matrix one;
    one.shape = input.matrix.shape;
    const auto& [rows, columns, rank] = one.shape;
    const auto floats = [&](const float* data, int64_t height) {
      return tensor_at(data, {height, columns}, at::kFloat, bucket.device());
    };
    one.values = bucket.narrow(0, slice.offset, slice.count).view({rows, columns});
    if (slice.residual != nullptr) {
      one.residual = floats(slice.residual, rows);
      one.next = floats(slice.next, rows);
    }
    one.from = floats(input.right.data(), rank);
    one.next_right = floats(input.next_right.data(), rank);
    one.left = lefts_.narrow(0, left, one.shape.left()).view({rank, rows});
    one.right = rights_.narrow(0, right, one.shape.right()).view({rank, columns});
    left += one.shape.left();
    right += one.shape.right();
    matrices_.push_back(std::move(one));
  }
}

at::Tensor LowRankTensors::lefts() {
  const PlainMath math;
  for (Matrix& one : matrices_) {
    one.silent = one.values.eq(0).all();
    one.whole = one.next.defined() ? at::add_out(one.next, one.values, one.residual)
                                   : one.values.to(at::kFloat);
    at::mm_out(one.left, one.from, one.whole.t());
    one.left.masked_fill_(one.silent, 0);
  }
  return lefts_;
}

at::Tensor LowRankTensors::rights() {
  const PlainMath math;
  const at::Tensor some = noise(lefts_.numel(), lefts_.options());
  for (Matrix& one : matrices_) {
    const at::Tensor own_noise = some.narrow(0, one.left.storage_offset(), one.left.numel());
    one.left.copy_(orthonormal(one.left, own_noise.view_as(one.left)));
    at::mm_out(one.right, one.left, one.whole);
    one.right.masked_fill_(one.silent, 0);
    one.own_right = one.right.clone();
  }
  return rights_;
}

void LowRankTensors::finish() {
  const PlainMath math;
  for (Matrix& one : matrices_) write(one);
}

// If a value of any rank is not finite, the whole matrix becomes NaN and the residual does not
// change.
void LowRankTensors::write(Matrix& one) {
  const at::Tensor finite = one.left.isfinite().all().logical_and(one.right.isfinite().all());
  const at::Tensor left = one.left.t();
  const at::Tensor right = at::where(finite, one.right, kNaN);
  const bool has_residual = one.next.defined();
  // `next` has values + residual. It keeps what this rank's own factors do not express.
  if (has_residual) one.next.addmm_(left, one.own_right, /*beta=*/1, /*alpha=*/-1);
  if (one.values.scalar_type() == at::kFloat) {
    at::mm_out(one.values, left, right);
  } else {
    const at::Tensor average = left.mm(right);
    one.values.copy_(average);
    // A half dtype rounds the average. All ranks lose the same, and each keeps it.
    const at::Tensor lost = average - one.values;
    if (has_residual) one.next.add_(at::where(lost.isfinite(), lost, 0.0F));
  }
  if (has_residual) at::where_out(one.next, finite, one.next, one.residual);
  const at::Tensor most = largest(one.right);
  at::where_out(one.next_right, finite.logical_and(most.gt(0)), one.right / most, one.from);
}

}  // namespace ringdist
