#include "codec/codec_metrics.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/check.h"

namespace ringdist {
namespace {

using Clock = std::chrono::steady_clock;

// Array of floats with the alignment of tensors.
class Floats {
 public:
  explicit Floats(size_t count) : memory_(count + kAlignment / sizeof(float)), count_(count) {}

  std::span<float> get() {
    void* at = memory_.data();
    size_t room = memory_.size() * sizeof(float);
    std::align(kAlignment, count_ * sizeof(float), at, room);
    return {static_cast<float*>(at), count_};
  }

 private:
  static constexpr size_t kAlignment = 64;
  std::vector<float> memory_;
  size_t count_;
};

// Fills `out` with normally distributed values, the same in each run.
void draw_normal(std::span<float> out) {
  constexpr size_t kDrawn = 1 << 18;  // these repeat, because drawing is slower than the codecs
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < out.size(); ++i) out[i] = i < kDrawn ? normal(random) : out[i - kDrawn];
}

template <typename Run>
double seconds_of(Run run) {
  const auto begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Returns the middle value, or the upper one of the two in the middle. There must be one.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns |x - y| / |x|.
double relative_error(std::span<const float> x, std::span<const float> y) {
  double lost = 0, all = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = static_cast<double>(x[i]) - y[i];
    lost += error * error;
    all += static_cast<double>(x[i]) * x[i];
  }
  return std::sqrt(lost / all);
}

}  // namespace

CodecMetrics measure_codec(const Codec& codec, size_t elements, double seconds) {
  check(elements >= 1, "measure_codec() of no elements");
  constexpr DType kType = DType::kFloat32;
  constexpr CodecSeed kSeed{1, 2};
  Floats memory[3] = {Floats(elements), Floats(elements), Floats(elements)};
  const std::span<float> in = memory[0].get(), residual = memory[1].get(), out = memory[2].get();
  draw_normal(in);
  std::vector<std::byte> wire(codec.max_bytes(static_cast<int64_t>(elements), kType));

  const size_t bytes = codec.encode(in, kType, {}, kSeed, wire);
  const ConstBytes encoded = ConstBytes(wire).first(bytes);
  const auto decode = [&](bool add) {
    check(codec.decode(encoded, kType, kSeed, add, out).ok(), "a codec refuses its own bytes");
  };
  decode(false);
  CodecMetrics figures;
  figures.relative_error = relative_error(in, out);
  const double fp32_bytes = static_cast<double>(elements) * sizeof(float);
  figures.wire_ratio = fp32_bytes / static_cast<double>(bytes);

  std::vector<double> times[5];
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  // The five measurements take turns, so that changes of the clock rate and load of the machine
  // affect all alike.
  while (Clock::now() < end || times[0].size() < 3) {
    times[0].push_back(seconds_of([&] { codec.encode(in, kType, residual, kSeed, wire); }));
    times[1].push_back(seconds_of([&] { codec.encode(in, kType, {}, kSeed, wire); }));
    times[2].push_back(seconds_of([&] { decode(true); }));
    times[3].push_back(seconds_of([&] { decode(false); }));
    times[4].push_back(seconds_of([&] { std::memcpy(out.data(), in.data(), in.size_bytes()); }));
  }
  const auto speed = [&](int i) { return fp32_bytes / median(times[i]) / 1e9; };
  figures.encode_with_residual = speed(0);
  figures.encode = speed(1);
  figures.decode_add = speed(2);
  figures.decode = speed(3);
  figures.memory_copy = speed(4);
  return figures;
}

}  // namespace ringdist
