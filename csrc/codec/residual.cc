#include "codec/residual.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "codec/none.h"
#include "kernel/cast.h"
#include "kernel/feedback.h"

namespace ringdist {
namespace {

constexpr size_t kChunk = 1024;  // elements: stays in the first-level cache
constexpr size_t kLanes = 8;     // sums side by side, for the compiler to vectorize

// Sums value(i)^2 for i < count.
template <typename Value>
double sum_of_squares(size_t count, Value value) {
  std::array<double, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t k = 0; k < kLanes; ++k) {
      const double x = value(i + k);
      sums[k] += x * x;
    }
  double out = 0;
  for (const double sum : sums) out += sum;
  for (; i < count; ++i) out += static_cast<double>(value(i)) * value(i);
  return out;
}

double sum_of_squares(std::span<const float> values) {
  return sum_of_squares(values.size(), [values](size_t i) { return values[i]; });
}

// Calls fn(first element, values as fp32) chunk by chunk; stops when it returns false.
template <typename Fn>
void for_chunks(DType dtype, ConstBytes values, Fn fn) {
  std::array<float, kChunk> wide;
  const size_t element = dtype_size(dtype);
  const size_t count = values.size() / element;
  const bool in_place =
      dtype == DType::kFloat32 && reinterpret_cast<uintptr_t>(values.data()) % alignof(float) == 0;
  for (size_t at = 0; at < count; at += kChunk) {
    const size_t n = std::min(kChunk, count - at);
    const std::byte* data = values.data() + at * element;
    if (in_place) {
      if (!fn(at, std::span(reinterpret_cast<const float*>(data), n))) return;
      continue;
    }
    widen(dtype, {data, n * element}, std::span(wide).first(n));
    if (!fn(at, std::span<const float>(wide).first(n))) return;
  }
}

}  // namespace

ResidualSpan Residual::begin() {
  next_.resize(values.size());
  return {values.data(), next_.data(), values.size()};
}

void Residual::commit(bool owed_now) {
  values.swap(next_);
  owed = owed_now;
}

double Residual::squared_norm() const { return sum_of_squares(values); }

Result<Residual*> ResidualStore::get(const std::string& name, int64_t count) {
  Residual& residual = residuals_[name];
  if (residual.values.empty()) residual.values.resize(static_cast<size_t>(count));
  if (residual.values.size() != static_cast<size_t>(count))
    return Error(ErrorKind::kInvalidArgument, "the residual of parameter '" + name + "' has " +
                                                  std::to_string(residual.values.size()) +
                                                  " elements, the parameter has " +
                                                  std::to_string(count));
  return &residual;
}

void ResidualStore::scale(float factor) {
  for (auto& [name, residual] : residuals_)
    if (residual.owed) ringdist::scale(residual.values, factor);
}

void ResidualStore::clear() {
  for (auto& [name, residual] : residuals_) {
    std::ranges::fill(residual.values, 0.0F);
    residual.owed = false;
  }
}

double ResidualStore::squared_norm() const {
  double out = 0;
  for (const auto& [name, residual] : residuals_)
    if (residual.owed) out += residual.squared_norm();
  return out;
}

bool may_use_feedback(const CodecPair& codecs) {
  return codecs.contribution->contraction() && codecs.result->contraction();
}

bool feedback_by_default(const CodecPair& codecs) {
  return may_use_feedback(codecs) &&
         (codecs.contribution->feedback_by_default() || codecs.result->feedback_by_default());
}

double squared_norm(DType dtype, ConstBytes values, std::span<const float> residual) {
  double out = 0;
  for_chunks(dtype, values, [&](size_t at, std::span<const float> chunk) {
    const float* lost = residual.data() + (residual.empty() ? 0 : at);
    out += residual.empty()
               ? sum_of_squares(chunk)
               : sum_of_squares(chunk.size(), [=](size_t i) { return chunk[i] + lost[i]; });
    return true;
  });
  return out;
}

bool all_zero(DType dtype, ConstBytes values) {
  bool out = true;
  for_chunks(dtype, values, [&](size_t, std::span<const float> chunk) {
    out = ringdist::all_zero(chunk);
    return out;
  });
  return out;
}

void pay(DType dtype, Bytes values, ResidualSpan residual) {
  std::array<float, kChunk> wide;
  const size_t element = dtype_size(dtype);
  for (size_t at = 0; at < residual.count; at += kChunk) {
    const std::span<float> chunk = std::span(wide).first(std::min(kChunk, residual.count - at));
    const Bytes stored = values.subspan(at * element, chunk.size() * element);
    widen(dtype, stored, chunk);
    no_codec().encode(chunk, dtype, residual.subspan(at, chunk.size()), {}, stored);
  }
}

}  // namespace ringdist
