#include "codec/gradient_memory.h"

#include <algorithm>
#include <array>

#include "codec/none.h"
#include "kernel/cast.h"
#include "kernel/feedback.h"

namespace ringdist {
namespace {

constexpr size_t kChunk = 1024;  // elements that fit into the first-level cache
constexpr size_t kLanes = 8;     // parallel sums, for the compiler to vectorize

// Returns the sum of value(i)^2 for i < count. The order of additions is fixed, so the result does
// not depend on the instruction set.
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

// Calls fn(first element, values as fp32) for each chunk. Stops if it returns false. Aligned fp32
// values are passed in place; all others are copied.
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

class HostMemory final : public GradientMemory {
 public:
  std::optional<DeviceStream> place() const override { return std::nullopt; }

  std::shared_ptr<float> zeros(int64_t count) override {
    const auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(count));
    return {values, values->data()};
  }
  void read(const float* from, std::span<float> to) override {
    std::copy_n(from, to.size(), to.begin());
  }
  void write(std::span<const float> from, float* to) override { std::ranges::copy(from, to); }

  double squared_norm(DType dtype, ConstBytes values, const float* residual) override {
    double out = 0;
    for_chunks(dtype, values, [&](size_t at, std::span<const float> chunk) {
      const float* const lost = residual == nullptr ? nullptr : residual + at;
      out += sum_of_squares(
          chunk.size(), [=](size_t i) { return lost == nullptr ? chunk[i] : chunk[i] + lost[i]; });
      return true;
    });
    return out;
  }

  bool all_zero(DType dtype, ConstBytes values) override {
    bool out = true;
    for_chunks(dtype, values, [&](size_t, std::span<const float> chunk) {
      out = ringdist::all_zero(chunk);
      return out;
    });
    return out;
  }

  void scale(DType dtype, Bytes values, double factor) override {
    over_floats(dtype, values, [&](size_t, std::span<float> chunk, Bytes stored) {
      ringdist::scale(chunk, static_cast<float>(factor));
      narrow(dtype, chunk, stored);
    });
  }

  void apply_residual(DType dtype, Bytes values, ResidualSpan residual) override {
    over_floats(dtype, values, [&](size_t at, std::span<float> chunk, Bytes stored) {
      no_codec().encode(chunk, dtype, residual.subspan(at, chunk.size()), {}, stored);
    });
  }

 private:
  // Calls fn(first element, values as fp32, stored values) for each chunk. fn() writes the new
  // values to the stored ones. The fp32 values are a copy, because encoders need inputs that do not
  // overlap outputs.
  template <typename Fn>
  static void over_floats(DType dtype, Bytes values, Fn fn) {
    std::array<float, kChunk> wide;
    const size_t element = dtype_size(dtype);
    for (size_t at = 0; at < values.size() / element; at += kChunk) {
      const size_t count = std::min(kChunk, values.size() / element - at);
      const std::span<float> chunk = std::span(wide).first(count);
      const Bytes stored = values.subspan(at * element, count * element);
      widen(dtype, stored, chunk);
      fn(at, chunk, stored);
    }
  }
};

}  // namespace

GradientMemory& host_memory() {
  static HostMemory memory;
  return memory;
}

}  // namespace ringdist
