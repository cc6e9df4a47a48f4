#include "kernel/exponent.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace ringdist {
namespace {

// Copies the low sizeof(Bits) - 1 bytes; a wider copy, where memory has room for it, is faster.
template <typename Bits>
void copy_rest(void* to, const void* from, bool room) {
  std::memcpy(to, from, room && sizeof(Bits) == 4 ? sizeof(Bits) : sizeof(Bits) - 1);
}

template <typename Bits, int kRotate>
void split(const std::byte* in, size_t count, uint8_t* __restrict bytes,
           std::byte* __restrict rest) {
  constexpr size_t kRest = sizeof(Bits) - 1;
  for (size_t i = 0; i < count; ++i) {
    Bits x;
    std::memcpy(&x, in + i * sizeof x, sizeof x);
    x = std::rotl(x, kRotate);
    bytes[i] = static_cast<uint8_t>(x >> (8 * kRest));
    copy_rest<Bits>(rest + i * kRest, &x, i + 1 < count);
  }
}

template <typename Bits, int kRotate>
void join(const uint8_t* bytes, const std::byte* rest, size_t count, std::byte* __restrict out) {
  constexpr size_t kRest = sizeof(Bits) - 1;
  constexpr int kShift = 8 * kRest;
  for (size_t i = 0; i < count; ++i) {
    Bits x = 0;
    copy_rest<Bits>(&x, rest + i * kRest, i + 1 < count);
    x = static_cast<Bits>((x & ((Bits{1} << kShift) - 1)) | bytes[i] << kShift);
    x = std::rotr(x, kRotate);
    std::memcpy(out + i * sizeof x, &x, sizeof x);
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
