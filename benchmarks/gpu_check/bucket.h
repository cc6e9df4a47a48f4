// A bucket of many parameters, encoded by a launch for each of them and by launches for many.
// Compares bytes, residuals and values of both ways, and times them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "codec/codec.h"
#include "cuda/kernel/kernels.h"
#include "device.h"
#include "support/floats.h"

namespace gpu_check {

class Bucket {
 public:
  static constexpr int kParameters = 160;

  Bucket(const ringdist::Codec& codec, ringdist::gpu::KernelCodec coding, std::mt19937& random)
      : coding_(coding) {
    for (int i = 0; i < kParameters; ++i) {
      const int64_t count = (4 << 10) + static_cast<int64_t>(random() % (252 << 10)) / 4 * 4;
      parts_.push_back({elements_, count, bytes_});
      elements_ += count;
      bytes_ += (codec.max_bytes(count, ringdist::DType::kFloat32) + 15) / 16 * 16;
    }
  }

  int64_t elements() const { return elements_; }
  size_t bytes() const { return bytes_; }

  struct Seconds {
    bool same;
    double encode_each, encode, decode_each, decode;  // encoding includes a residual
  };
  Seconds run(std::mt19937& random, int rounds) const {
    std::normal_distribution<float> normal;
    ringdist::Floats values(static_cast<size_t>(elements_));
    for (float& x : values) x = normal(random);
    const Memory one(values, bytes_), many(values, bytes_);
    encode_each(one);
    encode(many);
    decode_each(one);
    decode(many);
    Seconds out{};
    out.same = one.coded.values() == many.coded.values() &&
               ringdist::same_but_for_nans(one.residual.values(), many.residual.values()) &&
               ringdist::same_but_for_nans(one.out.values(), many.out.values());
    if (rounds == 0) return out;
    out.encode_each = least_seconds(rounds, [&](void*) { encode_each(one); });
    out.encode = least_seconds(rounds, [&](void*) { encode(many); });
    out.decode_each = least_seconds(rounds, [&](void*) { decode_each(one); });
    out.decode = least_seconds(rounds, [&](void*) { decode(many); });
    return out;
  }

 private:
  struct Part {
    int64_t at, count;
    size_t bytes_at;
  };
  struct Memory {
    Memory(const ringdist::Floats& values, size_t bytes)
        : in(values), residual(values.size()), out(values.size()), coded(bytes), malformed(1) {}
    DeviceMemory<float> in, residual, out;
    DeviceMemory<uint8_t> coded;
    DeviceMemory<int> malformed;
  };

  std::vector<ringdist::gpu::EncodeCall> encodes(const Memory& of) const {
    std::vector<ringdist::gpu::EncodeCall> out;
    for (const Part& part : parts_)
      out.push_back({of.in.data() + part.at,
                     {of.residual.data() + part.at, of.residual.data() + part.at},
                     part.count,
                     kSeed,
                     of.coded.data() + part.bytes_at});
    return out;
  }
  std::vector<ringdist::gpu::DecodeCall> decodes(const Memory& of) const {
    std::vector<ringdist::gpu::DecodeCall> out;
    for (const Part& part : parts_)
      out.push_back({of.coded.data() + part.bytes_at, kSeed, true, of.out.data() + part.at,
                     part.count, of.malformed.data()});
    return out;
  }
  void encode_each(const Memory& of) const {
    for (const auto& call : encodes(of))
      check(ringdist::gpu::encode(coding_, call, nullptr), "encode");
  }
  void encode(const Memory& of) const {
    check(ringdist::gpu::encode(coding_, encodes(of), nullptr), "encode of many");
  }
  void decode_each(const Memory& of) const {
    for (const auto& call : decodes(of))
      check(ringdist::gpu::decode(coding_, call, nullptr), "decode");
  }
  void decode(const Memory& of) const {
    check(ringdist::gpu::decode(coding_, decodes(of), nullptr), "decode of many");
  }

  static constexpr ringdist::gpu::Seed kSeed{.shared = 17, .own = 42};

  const ringdist::gpu::KernelCodec coding_;
  std::vector<Part> parts_;
  int64_t elements_ = 0;
  size_t bytes_ = 0;
};

}  // namespace gpu_check
