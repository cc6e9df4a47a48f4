#include "support/coding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernel/cast.h"

namespace ringdist::test {

std::vector<std::string> all_specs() {
  std::vector<std::string> out;
  for (const CodecRow& row : codecs())
    for (std::string_view example : row.examples) {
      out.emplace_back(example);
      if (!codec_of(example)->exact()) out.push_back(out.back() + "+h");
    }
  return out;
}

std::string test_name(const std::string& spec) {
  std::string out = spec;
  std::replace_if(out.begin(), out.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return out;
}

CodecPtr codec_of(std::string_view spec) {
  Result<CodecPtr> out = parse_codec(spec);
  if (!out.ok()) throw std::runtime_error(out.error().what());
  return out.value();
}

Memory encode(const Codec& codec, std::span<const float> in, DType dtype, ResidualSpan residual,
              CodecSeed seed) {
  constexpr std::byte kGuard{0x5a};
  constexpr size_t kGuards = 16;
  const size_t most = codec.max_bytes(static_cast<int64_t>(in.size()), dtype);
  Memory out(most + kGuards, kGuard);
  const size_t used = codec.encode(in, dtype, residual, seed, Bytes(out).first(most));
  EXPECT_LE(used, most);
  EXPECT_EQ(std::count(out.begin() + static_cast<ptrdiff_t>(most), out.end(), kGuard), kGuards);
  out.resize(used);
  return {out.begin(), out.end()};
}

Floats decode(const Codec& codec, const Memory& bytes, DType dtype, CodecSeed seed, size_t count) {
  Floats out(count, -7.0f);
  const Result<size_t> used = codec.decode(bytes, dtype, seed, false, out);
  EXPECT_EQ(used.ok() ? used.value() : 0, bytes.size());
  return out;
}

Floats random_values(size_t count, DType dtype, std::mt19937_64& random) {
  Floats out(count);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-14, 6);
  float size = 1;
  bool zero = false;
  for (size_t i = 0; i < count; ++i) {
    if (i % 64 == 0) {
      size = std::ldexp(1.0f, exponent(random));
      zero = random() % 8 == 0;
    }
    out[i] = zero ? 0.0f : size * normal(random);
  }
  Memory stored(count * dtype_size(dtype));
  narrow(dtype, out, stored);
  widen(dtype, stored, out);
  return out;
}

std::vector<NamedInput> nasty_inputs(size_t count, std::mt19937_64& random) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  std::normal_distribution<float> normal;
  std::vector<NamedInput> out;
  const auto add = [&](std::string name, auto value) {
    Floats values(count);
    for (size_t i = 0; i < count; ++i) values[i] = value(i);
    out.push_back({std::move(name), std::move(values)});
  };
  const auto one_of = [&](float value) {
    return [=](size_t i) { return i == count / 2 ? value : 0.0f; };
  };
  const auto sign = [](size_t i) { return i % 2 == 0 ? 1.0f : -1.0f; };
  add("all zero", [](size_t) { return 0.0f; });
  add("minus zero", [](size_t) { return -0.0f; });
  for (float scale : {1.0f, 0x1p-20f, 0x1p60f, 0x1p-60f, 0x1p-110f, 0x1p-126f, 0x1p124f}) {
    const std::string times = " times 2^" + std::to_string(std::ilogb(scale));
    add("normal" + times, [&](size_t) { return scale * normal(random); });
    add("one" + times, one_of(scale));
    add("all equal" + times, [=](size_t) { return scale; });
    add("alternating" + times, [=](size_t i) { return sign(i) * scale; });
    add("one huge" + times,
        [=](size_t i) { return i == 3 % count ? scale * 8 : scale * 0x1p-14f; });
    add("sparse" + times, [&](size_t i) { return i % 97 == 0 ? scale * normal(random) : 0.0f; });
  }
  add("largest", [=](size_t) { return kMost; });
  add("largest, alternating", [=](size_t i) { return sign(i) * kMost; });
  add("one largest", one_of(-kMost));
  add("least", [=](size_t) { return -kLeast; });
  add("one least", one_of(kLeast));
  add("subnormal", [&](size_t) { return kLeast * static_cast<float>(random() % 70000); });
  add("few subnormal", [&](size_t i) { return i % 61 == 0 ? kLeast * (random() % 9) : 0.0f; });
  add("any finite bits", [&](size_t) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    return is_finite(x) ? x : 1.0f;
  });
  return out;
}

}  // namespace ringdist::test
