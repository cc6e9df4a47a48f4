// Compares the kernels of csrc/cuda with the codecs of the CPU on a device, and measures their
// speed. It prints lines of JSON. benchmarks/gpu_check/__main__.py builds and starts it, and writes
// the report. Arguments are codecs, all by default. With --no-speed it does not measure.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bucket.h"
#include "codec/codec.h"
#include "cuda/kernel/kernels.h"
#include "cuda/stream/kernel_codec_of.h"
#include "device.h"
#include "kernel/block_format.h"
#include "support/block_values.h"
#include "support/floats.h"

namespace gpu_check {
namespace {

using namespace ringdist;
using Coded = std::vector<uint8_t>;

constexpr int64_t kLarge = int64_t{64} << 20;  // elements, more than every cache holds
constexpr int kRounds = 20;

class Check {
 public:
  Check(CodecPtr codec, gpu::KernelCodec coding) : codec_(std::move(codec)), coding_(coding) {}

  const Codec& codec() const { return *codec_; }
  gpu::KernelCodec coding() const { return coding_; }

  // Returns the number of cases that differ from the CPU's, and describes the first one in `first`.
  int differences(std::mt19937& random, int& cases, std::string& first) const {
    int out = 0;
    const auto block = std::max<size_t>(static_cast<size_t>(codec_->block()), 256);
    std::vector<size_t> counts{1,   2,   31,  32,   33,   100,  127,  128, 129,
                               255, 256, 257, 1023, 1025, 8191, 8192, 8193};
    for (int i = 0; i < 20; ++i) counts.push_back(1 + random() % (300 * block));
    counts.push_back(1 << 20);
    for (const size_t count : counts)
      for (const bool feedback : {false, true}) {
        ++cases;
        const std::string difference = compare(count, feedback, random);
        if (difference.empty()) continue;
        if (out++ == 0) first = difference;
      }
    return out;
  }

  // Speeds in GB/s of bytes that a call reads and writes.
  struct Speed {
    double encode, decode;
  };
  Speed speed(bool feedback) const {
    const auto count = static_cast<size_t>(kLarge);
    const size_t size = codec_->max_bytes(kLarge, coding_.dtype);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    Floats values(count);
    Floats pattern(1 << 20);
    for (float& x : pattern) x = normal(random);
    for (size_t at = 0; at < count; at += pattern.size())
      std::copy_n(pattern.begin(), pattern.size(), values.begin() + static_cast<ptrdiff_t>(at));
    const DeviceMemory<float> in(values), old_residual(feedback ? count : 1), out(count);
    const DeviceMemory<uint8_t> coded(size);
    const DeviceMemory<int> malformed(1);
    const double encoding = least_seconds(kRounds, [&](void* stream) {
      const gpu::ResidualPointers residual{feedback ? old_residual.data() : nullptr,
                                           old_residual.data()};
      check(gpu::encode(coding_, {in.data(), residual, kLarge, kSeed, coded.data()}, stream),
            "encode");
    });
    const double decoding = least_seconds(kRounds, [&](void* stream) {
      check(gpu::decode(coding_, {coded.data(), kSeed, false, out.data(), kLarge, malformed.data()},
                        stream),
            "decode");
    });
    const auto floats = static_cast<double>(count * sizeof(float));
    const auto bytes = static_cast<double>(size);
    return {(floats * (feedback ? 3 : 1) + bytes) / encoding / 1e9,
            (floats + bytes) / decoding / 1e9};
  }

 private:
  static constexpr gpu::Seed kSeed{.shared = 17, .own = 42};

  // Returns values of all kinds, or values like gradients.
  static Floats values(size_t count, std::mt19937& random) {
    if (random() % 2 == 0) return block_values(count, kQuantizeBlock, random);
    std::normal_distribution<float> normal;
    Floats out(count);
    for (float& x : out) x = normal(random);
    return out;
  }

  // Returns the difference as text, or "".
  std::string compare(size_t count, bool feedback, std::mt19937& random) const {
    const Floats in = values(count, random), old_residual = values(count, random);
    const CodecSeed seed{random(), random()};
    const gpu::Seed device_seed{seed.shared, seed.own};
    const std::string what =
        std::to_string(count) + " elements" + (feedback ? " and a residual: " : ": ");
    Coded expected(codec_->max_bytes(static_cast<int64_t>(count), coding_.dtype));
    Floats lost(count);
    const ResidualSpan residual =
        feedback ? ResidualSpan(old_residual.data(), lost.data(), count) : ResidualSpan();
    codec_->encode(in, coding_.dtype, residual, seed, std::as_writable_bytes(std::span(expected)));

    const auto elements = static_cast<int64_t>(count);
    const DeviceMemory<float> device_in(in), from(old_residual), to(count);
    const DeviceMemory<uint8_t> coded(expected.size());
    check(gpu::encode(coding_,
                      {device_in.data(),
                       {feedback ? from.data() : nullptr, to.data()},
                       elements,
                       device_seed,
                       coded.data()},
                      nullptr),
          "encode");
    const Coded bytes = coded.values();
    if (bytes != expected) {
      const auto at = std::ranges::mismatch(bytes, expected).in1 - bytes.begin();
      return what + "byte " + std::to_string(at) + " of " + std::to_string(bytes.size());
    }
    if (feedback && !same_but_for_nans(to.values(), lost)) return what + "what is owed";
    for (const bool accumulate : {false, true}) {
      Floats values = in;
      const DeviceMemory<float> out(in);
      const DeviceMemory<int> malformed(1);
      const bool good =
          codec_
              ->decode(std::as_bytes(std::span(expected)), coding_.dtype, seed, accumulate, values)
              .ok();
      check(gpu::decode(
                coding_,
                {coded.data(), device_seed, accumulate, out.data(), elements, malformed.data()},
                nullptr),
            "decode");
      if (!good || malformed.values()[0] != 0) return what + "not decoded";
      if (!same_but_for_nans(out.values(), values)) return what + "what it decodes to";
    }
    return "";
  }

  CodecPtr codec_;
  gpu::KernelCodec coding_;
};

// Returns GB/s, read and written, of a copy within the memory of the device.
double copy_speed() {
  const DeviceMemory<float> from(static_cast<size_t>(kLarge)), to(static_cast<size_t>(kLarge));
  const double took = least_seconds(kRounds, [&](void*) {
    check(cudaMemcpyAsync(to.data(), from.data(), to.bytes(), cudaMemcpyDeviceToDevice, nullptr),
          "copy");
  });
  return 2 * static_cast<double>(to.bytes()) / took / 1e9;
}

// Returns true if one launch for many parameters gives the same results as separate launches.
bool run_bucket(const Check& one, std::mt19937& random, bool measures) {
  const Bucket bucket(one.codec(), one.coding(), random);
  const Bucket::Seconds took = bucket.run(random, measures ? kRounds : 0);
  std::printf(
      "{\"bucket\": \"%s\", \"parameters\": %d, \"elements\": %lld, \"same\": %s, \"encode_each\": "
      "%.1f, \"encode\": %.1f, \"decode_each\": %.1f, \"decode\": %.1f}\n",
      std::string(one.codec().name()).c_str(), Bucket::kParameters,
      static_cast<long long>(bucket.elements()), took.same ? "true" : "false",
      took.encode_each * 1e6, took.encode * 1e6, took.decode_each * 1e6, took.decode * 1e6);
  std::fflush(stdout);
  return took.same;
}

// Prints the result of a check. Returns false if something differs.
bool report(const std::string& name, const Check& one, bool measures, std::mt19937& random) {
  int cases = 0;
  std::string first;
  const int different = one.differences(random, cases, first);
  Check::Speed plain{}, fed_back{};
  if (measures) plain = one.speed(false), fed_back = one.speed(true);
  std::printf(
      "{\"codec\": \"%s\", \"cases\": %d, \"different\": %d, \"first\": \"%s\", \"encode\": "
      "%.1f, \"encode_feedback\": %.1f, \"decode\": %.1f}\n",
      name.c_str(), cases, different, first.c_str(), plain.encode, fed_back.encode, plain.decode);
  std::fflush(stdout);
  return different == 0;
}

int run(std::vector<std::string_view> names) {
  const bool measures = std::erase(names, "--no-speed") == 0;
  const auto wanted = [&](std::string_view name) {
    return names.empty() || std::ranges::find(names, name) != names.end();
  };
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "no device: %s\n",
                 error == cudaSuccess ? "the driver knows of none" : cudaGetErrorString(error));
    return 2;
  }
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "device 0");
  const uint32_t seed = std::random_device()();
  std::printf("{\"device\": \"%s\", \"capability\": \"%d.%d\", \"copy\": %.1f, \"seed\": %u}\n",
              device.name, device.major, device.minor, measures ? copy_speed() : 0.0, seed);
  std::mt19937 random(seed);
  bool all_same = true;
  for (const CodecRow& row : codecs())
    for (const std::string_view example : row.examples)
      for (const char* rotation : {"", "+h"}) {
        auto codec = parse_codec(std::string(example) + rotation);
        if (!codec.ok()) continue;  // exact codecs support no rotation
        if (!wanted(codec.value()->name())) continue;
        for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
          if (dtype != DType::kFloat32 && !codec.value()->exact())
            continue;  // lossy codecs ignore it
          const auto coding = gpu::kernel_codec_of(*codec.value(), dtype);
          if (!coding) continue;
          std::string name(codec.value()->name());
          if (dtype != DType::kFloat32) name += " of " + std::string(dtype_name(dtype));
          const Check one(codec.value(), *coding);
          all_same &= report(name, one, measures, random);
          // Calls of the codec lossless cannot share a launch.
          if (std::string_view(rotation).empty() && coding->code != gpu::Code::kLossless)
            all_same &= run_bucket(one, random, measures);
        }
      }
  return all_same ? 0 : 1;
}

}  // namespace
}  // namespace gpu_check

int main(int argc, char** argv) { return gpu_check::run({argv + 1, argv + argc}); }
