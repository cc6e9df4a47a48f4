// Functions name their instruction set themselves, for the reason given in kernel/reduce_avx2.cc.
#include "kernel/round16.h"

#include "kernel/round16_loops.h"

namespace ringdist {
namespace {

using rounding16::BFloat;
using rounding16::Half;
using rounding16::StochasticBFloat;

template <typename Type>
[[gnu::noinline]] void baseline(std::span<const float> in, ResidualSpan residual, uint64_t key,
                                Bytes out) {
  rounding16::round<Type>(in, residual, key, out);
}

template <auto kHalf, auto kBFloat, auto kStochastic>
struct Table {
  static void to_half(std::span<const float> in, ResidualSpan residual, Bytes out) {
    kHalf(in, residual, 0, out);
  }
  static void to_bfloat(std::span<const float> in, ResidualSpan residual, Stochastic rounding,
                        Bytes out) {
    (rounding.on ? kStochastic : kBFloat)(in, residual, rounding.key, out);
  }
  static constexpr Round16Loops kLoops{to_half, to_bfloat};
};

using Baseline = Table<baseline<Half>, baseline<BFloat>, baseline<StochasticBFloat>>;

}  // namespace

const Round16Loops* round16_baseline() { return &Baseline::kLoops; }

const Round16Loops& round16() {
  static const Round16Loops* best = round16_avx512() != nullptr ? round16_avx512()
                                    : round16_avx2() != nullptr ? round16_avx2()
                                                                : round16_baseline();
  return *best;
}

#if defined(__x86_64__)

namespace {

template <typename Type>
[[gnu::target("avx2"), gnu::noinline]] void avx2(std::span<const float> in, ResidualSpan residual,
                                                 uint64_t key, Bytes out) {
  rounding16::round<Type>(in, residual, key, out);
}

template <typename Type>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::noinline]] void avx512(
    std::span<const float> in, ResidualSpan residual, uint64_t key, Bytes out) {
  rounding16::round<Type>(in, residual, key, out);
}

using Avx2 = Table<avx2<Half>, avx2<BFloat>, avx2<StochasticBFloat>>;
using Avx512 = Table<avx512<Half>, avx512<BFloat>, avx512<StochasticBFloat>>;

}  // namespace

const Round16Loops* round16_avx2() {
  static const bool can = __builtin_cpu_supports("avx2") != 0;
  return can ? &Avx2::kLoops : nullptr;
}

const Round16Loops* round16_avx512() {
  static const bool can = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return can ? &Avx512::kLoops : nullptr;
}

#else

const Round16Loops* round16_avx2() { return nullptr; }
const Round16Loops* round16_avx512() { return nullptr; }

#endif

}  // namespace ringdist
