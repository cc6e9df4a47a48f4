#include "kernel/exponent.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace ringdist {
namespace {

template <typename Bits, int kRotate>
[[gnu::always_inline]] inline void split(const std::byte* in, size_t count,
                                         uint8_t* __restrict bytes, std::byte* __restrict rest) {
  constexpr size_t kRest = sizeof(Bits) - 1;
  for (size_t i = 0; i < count; ++i) {
    Bits x;
    std::memcpy(&x, in + i * sizeof x, sizeof x);
    x = std::rotl(x, kRotate);
    bytes[i] = static_cast<uint8_t>(x >> (8 * kRest));
    for (size_t j = 0; j < kRest; ++j) rest[i * kRest + j] = static_cast<std::byte>(x >> (8 * j));
  }
}

template <typename Bits, int kRotate>
[[gnu::always_inline]] inline void join(const uint8_t* bytes, const std::byte* rest, size_t count,
                                        std::byte* __restrict out) {
  constexpr size_t kRest = sizeof(Bits) - 1;
  for (size_t i = 0; i < count; ++i) {
    uint32_t x = static_cast<uint32_t>(bytes[i]) << (8 * kRest);
    for (size_t j = 0; j < kRest; ++j) x |= static_cast<uint32_t>(rest[i * kRest + j]) << (8 * j);
    const Bits value = std::rotr(static_cast<Bits>(x), kRotate);
    std::memcpy(out + i * sizeof value, &value, sizeof value);
  }
}

}  // namespace

void split_exponents(DType dtype, ConstBytes in, std::span<uint8_t> bytes, Bytes rest) {
  const auto run = [&](auto function) {
    function(in.data(), bytes.size(), bytes.data(), rest.data());
  };
  if (dtype == DType::kFloat32) return run(split<uint32_t, 1>);
  if (dtype == DType::kBFloat16) return run(split<uint16_t, 1>);
  check(dtype == DType::kFloat16, "a dtype without an exponent to split");
  run(split<uint16_t, 0>);
}

void join_exponents(DType dtype, std::span<const uint8_t> bytes, ConstBytes rest, Bytes out) {
  const auto run = [&](auto function) {
    function(bytes.data(), rest.data(), bytes.size(), out.data());
  };
  if (dtype == DType::kFloat32) return run(join<uint32_t, 1>);
  if (dtype == DType::kBFloat16) return run(join<uint16_t, 1>);
  check(dtype == DType::kFloat16, "a dtype without an exponent to join");
  run(join<uint16_t, 0>);
}

}  // namespace ringdist
