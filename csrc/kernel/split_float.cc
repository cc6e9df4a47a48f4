#include "kernel/split_float.h"

#include <cstring>

#include "base/check.h"

namespace ringdist {
namespace {

// Copies the low sizeof(Bits) - 1 bytes. If memory has room for it, a wider copy is faster. Its
// extra byte is overwritten by the next element, or ignored by join().
template <typename Bits>
void copy_rest(void* to, const void* from, bool room) {
  std::memcpy(to, from, room && sizeof(Bits) == 4 ? sizeof(Bits) : sizeof(Bits) - 1);
}

template <typename Split>
void split(const std::byte* in, size_t count, uint8_t* __restrict bytes,
           std::byte* __restrict rests) {
  for (size_t i = 0; i < count; ++i) {
    typename Split::Bits x;
    std::memcpy(&x, in + i * sizeof x, sizeof x);
    bytes[i] = Split::symbol(x);
    const auto rest = Split::rest(x);
    copy_rest<typename Split::Bits>(rests + i * Split::kRest, &rest, i + 1 < count);
  }
}

template <typename Split>
void join(const uint8_t* bytes, const std::byte* rests, size_t count, std::byte* __restrict out) {
  for (size_t i = 0; i < count; ++i) {
    typename Split::Bits rest = 0;
    copy_rest<typename Split::Bits>(&rest, rests + i * Split::kRest, i + 1 < count);
    const auto x = Split::join(bytes[i], rest);
    std::memcpy(out + i * sizeof x, &x, sizeof x);
  }
}

}  // namespace

void split_exponents(DType dtype, ConstBytes in, std::span<uint8_t> bytes, Bytes rest) {
  const auto run = [&](auto function) {
    function(in.data(), bytes.size(), bytes.data(), rest.data());
  };
  if (dtype == DType::kFloat32) return run(split<SplitFloat32>);
  if (dtype == DType::kBFloat16) return run(split<SplitBFloat16>);
  check(dtype == DType::kFloat16, "a dtype without an exponent to split");
  run(split<SplitFloat16>);
}

void join_exponents(DType dtype, std::span<const uint8_t> bytes, ConstBytes rest, Bytes out) {
  const auto run = [&](auto function) {
    function(bytes.data(), rest.data(), bytes.size(), out.data());
  };
  if (dtype == DType::kFloat32) return run(join<SplitFloat32>);
  if (dtype == DType::kBFloat16) return run(join<SplitBFloat16>);
  check(dtype == DType::kFloat16, "a dtype without an exponent to join");
  run(join<SplitFloat16>);
}

}  // namespace ringdist
