// Compares every loop (baseline, AVX2 and AVX-512 where the processor has them) with arithmetic on
// one element at a time. All must give the same bits.
#include "kernel/reduce.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernel/half.h"
#include "kernel/reduce_isa.h"
#include "kernel/reference.h"

namespace ringdist {
namespace {

using Memory = std::vector<std::byte>;
using Operands = std::vector<const std::byte*>;

std::vector<DType> types_with(ReduceOp op) {
  std::vector<DType> out;
  for (int i = 0; i <= static_cast<int>(DType::kFloat8E5M2); ++i)
    if (is_reducible(static_cast<DType>(i), op)) out.push_back(static_cast<DType>(i));
  return out;
}

std::vector<ReduceFunction> functions() {
  std::vector<ReduceFunction> out{reduce, reduce_baseline};
  for (const ReduceFunction wide : {reduce_avx2(), reduce_avx512()})
    if (wide != nullptr) out.push_back(wide);
  return out;
}

// Returns the dtype of the real and imaginary parts of a complex dtype, or the dtype itself.
DType part_of(DType dtype) {
  if (dtype == DType::kComplex32) return DType::kFloat16;
  if (dtype == DType::kComplex64) return DType::kFloat32;
  return dtype == DType::kComplex128 ? DType::kFloat64 : dtype;
}

using reference::load;

template <typename T>
Memory memory_of(std::initializer_list<T> values) {
  Memory out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.begin(), out.size());
  return out;
}

// Returns random bits. They include floats of all exponents, subnormals, infinities and NaNs. Half
// of the floats are drawn near 1 instead, so that sums round, and half of the bools are 0.
Memory random_elements(DType dtype, size_t count, std::mt19937_64& random) {
  Memory out(count * dtype_size(dtype));
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  const DType part = part_of(dtype);
  const size_t size = dtype_size(part);
  for (size_t i = 0; i < out.size() / size; i += 2) {
    const double x = std::uniform_real_distribution<double>(-2, 2)(random);
    const auto f = static_cast<float>(x);
    const uint16_t half = part == DType::kFloat16 ? float_to_half(f) : float_to_bfloat(f);
    std::byte* at = out.data() + i * size;
    if (part == DType::kFloat64) std::memcpy(at, &x, sizeof(x));
    if (part == DType::kFloat32) std::memcpy(at, &f, sizeof(f));
    if (is_half(part)) std::memcpy(at, &half, sizeof(half));
    if (part == DType::kBool && (random() & 1) != 0) *at = std::byte{0};
  }
  return out;
}

struct Layout {
  size_t sources;
  size_t count;
  size_t shift;  // bytes from alignment
  int out_is;    // source that is also the output, or -1
};

void check_layout(DType dtype, ReduceOp op, const Layout& layout, std::mt19937_64& random) {
  const size_t size = dtype_size(dtype);
  std::vector<Memory> inputs;
  for (size_t s = 0; s < layout.sources; ++s)
    inputs.push_back(random_elements(dtype, layout.count, random));
  const auto divisor = static_cast<int64_t>(op == ReduceOp::kAvg ? layout.sources : 7);
  std::vector<Memory> expected;
  for (size_t i = 0; i < layout.count; ++i) {
    Operands operands;
    for (const Memory& input : inputs) operands.push_back(input.data() + i * size);
    expected.push_back(reference::reduce_one(dtype, op, operands, divisor));
  }
  for (ReduceFunction function : functions()) {
    std::vector<Memory> moved;
    for (const Memory& input : inputs) {
      Memory& at = moved.emplace_back(layout.shift);
      at.insert(at.end(), input.begin(), input.end());
    }
    const std::byte kGuard{0x5a};
    Memory separate(layout.shift + layout.count * size + 1, kGuard);
    std::byte* out = (layout.out_is < 0 ? separate : moved[layout.out_is]).data() + layout.shift;
    Operands sources;
    for (const Memory& at : moved) sources.push_back(at.data() + layout.shift);
    function(dtype, op, out, sources, layout.count, divisor);
    EXPECT_EQ(separate.back(), kGuard);
    for (size_t i = 0; i < layout.count; ++i)
      ASSERT_EQ(std::memcmp(out + i * size, expected[i].data(), size), 0)
          << dtype_name(dtype) << " " << reduce_op_name(op) << " element " << i << " of "
          << layout.count << ", " << layout.sources << " sources, shift " << layout.shift
          << ", out is " << layout.out_is;
    for (int s = 0; s < static_cast<int>(layout.sources); ++s) {
      const std::byte* at = moved[s].data() + layout.shift;
      EXPECT_TRUE(s == layout.out_is || Memory(at, at + inputs[s].size()) == inputs[s]);
    }
  }
}

class Reduce : public testing::TestWithParam<DType> {
 protected:
  const uint32_t seed_ = std::random_device()();
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::mt19937_64 random_{seed_};
};

TEST_P(Reduce, MatchesExactArithmetic) {
  for (ReduceOp op : all_reduce_ops()) {
    if (!is_reducible(GetParam(), op)) continue;
    for (size_t sources : {1, 2, 3, 5})
      for (size_t count : {0, 1, 7, 1023, 1024, 1025, 2500})
        check_layout(GetParam(), op, {sources, count, 0, -1}, random_);
    for (size_t sources : {1, 2, 4})
      for (size_t shift : {1, 3, 8})
        for (int out_is = -1; out_is < static_cast<int>(sources); ++out_is)
          check_layout(GetParam(), op, {sources, 1100, shift, out_is}, random_);
  }
}

class ReduceOrdered : public Reduce {};

TEST_P(ReduceOrdered, ExtremesDoNotDependOnTheOrder) {
  const DType dtype = GetParam();
  const size_t size = dtype_size(dtype);
  constexpr size_t kCount = 4096;
  Memory a = random_elements(dtype, kCount, random_);
  const Memory b = random_elements(dtype, kCount, random_);
  // Many elements are zero in both operands, with equal or opposite signs.
  for (size_t i = 0; i < kCount; i += 3) std::memset(a.data() + i * size, 0, size);
  for (ReduceFunction function : functions()) {
    for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      Memory ab(a.size());
      Memory ba(a.size());
      const Operands forward{a.data(), b.data(), a.data()};
      const Operands backward{b.data(), a.data(), b.data()};
      function(dtype, op, ab.data(), forward, kCount, 1);
      function(dtype, op, ba.data(), backward, kCount, 1);
      EXPECT_EQ(ab, ba);
    }
  }
}

std::string name_of(const testing::TestParamInfo<DType>& row) {
  return std::string(dtype_name(row.param));
}
// Every dtype that supports a reduction supports SUM.
INSTANTIATE_TEST_SUITE_P(All, Reduce, testing::ValuesIn(types_with(ReduceOp::kSum)), name_of);
INSTANTIATE_TEST_SUITE_P(All, ReduceOrdered, testing::ValuesIn(types_with(ReduceOp::kMin)),
                         name_of);

// Repeats the values often enough to fill whole vectors and leave a tail.
template <typename T>
Memory repeated(std::initializer_list<T> values) {
  const Memory once = memory_of<T>(values);
  Memory out;
  for (int i = 0; i < 43; ++i) out.insert(out.end(), once.begin(), once.end());
  return out;
}

template <typename T>
void check_zeros_and_nans(DType dtype, T plus, T minus, T nan, T canonical, T one) {
  const Memory a = repeated<T>({plus, minus, nan, one, nan, minus});
  const Memory b = repeated<T>({minus, plus, one, nan, nan, minus});
  const size_t count = a.size() / sizeof(T);
  const Operands sources{a.data(), b.data()};
  for (ReduceFunction function : functions()) {
    Memory out(a.size());
    function(dtype, ReduceOp::kMin, out.data(), sources, count, 1);
    EXPECT_EQ(out, repeated<T>({minus, minus, canonical, canonical, canonical, minus}));
    function(dtype, ReduceOp::kMax, out.data(), sources, count, 1);
    EXPECT_EQ(out, repeated<T>({plus, plus, canonical, canonical, canonical, minus}));
    function(dtype, ReduceOp::kMax, out.data(), std::span(sources).first(1), count, 1);
    EXPECT_EQ(out, repeated<T>({plus, minus, canonical, one, canonical, minus}));
  }
}

TEST(ReduceRules, ZerosAreOrderedAndNaNsCanonical) {
  check_zeros_and_nans<uint32_t>(DType::kFloat32, 0, 0x80000000, 0xff801234, 0x7fc00000,
                                 0x3f800000);
  check_zeros_and_nans<uint64_t>(DType::kFloat64, 0, 1ull << 63, 0xfff0000000001234,
                                 0x7ff8000000000000, 0x3ff0000000000000);
  check_zeros_and_nans<uint16_t>(DType::kFloat16, 0, 0x8000, 0xfc01, 0x7e00, 0x3c00);
  check_zeros_and_nans<uint16_t>(DType::kBFloat16, 0, 0x8000, 0xff81, 0x7fc0, 0x3f80);
}

TEST(ReduceRules, SumsOfIntegersWrapAndAveragesTruncate) {
  const Memory a = memory_of<int8_t>({127, -7, 7, -128, 100});
  const Memory b = memory_of<int8_t>({1, 0, 0, -1, 100});
  const Operands sources{a.data(), b.data()};
  for (ReduceFunction function : functions()) {
    Memory out(5);
    function(DType::kInt8, ReduceOp::kSum, out.data(), sources, 5, 1);
    EXPECT_EQ(out, memory_of<int8_t>({-128, -7, 7, 127, -56}));
    function(DType::kInt8, ReduceOp::kAvg, out.data(), sources, 5, 2);
    EXPECT_EQ(out, memory_of<int8_t>({64, -3, 3, -64, 100}));
  }
}

// Every 16-bit value with every small divisor, and 32-bit values with quotients closest to an
// integer in double. The division by way of double must never round up.
TEST(ReduceRules, IntegerAverageIsExact) {
  std::vector<int32_t> values;
  for (int32_t k : {1, 2, 3, 1000, 715827882, 1073741823, 2147483647})
    for (int32_t d = -2; d <= 2; ++d) values.push_back(static_cast<int32_t>(int64_t{k} + d));
  for (int32_t v = -33000; v < 33000; ++v) values.push_back(v);
  std::vector<int32_t> out(values.size());
  const auto* in = reinterpret_cast<const std::byte*>(values.data());
  for (ReduceFunction function : functions()) {
    for (int64_t divisor : {2, 3, 7, 64, 1000, 65537, 2147483647}) {
      function(DType::kInt32, ReduceOp::kAvg, reinterpret_cast<std::byte*>(out.data()),
               std::span(&in, 1), values.size(), divisor);
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(out[i], values[i] / divisor) << values[i] << " / " << divisor;
    }
  }
}

// In bf16 (8 bits of precision), rounding after each addition would lose both terms of 1 + 2^-8 +
// 2^-8.
TEST(ReduceRules, HalfPrecisionRoundsOnce) {
  const uint16_t one = float_to_bfloat(1.0f);
  const uint16_t tiny = float_to_bfloat(0x1p-8f);
  const Memory a = memory_of<uint16_t>({one});
  const Memory b = memory_of<uint16_t>({tiny});
  const Operands sources{a.data(), b.data(), b.data()};
  for (ReduceFunction function : functions()) {
    Memory out(2);
    function(DType::kBFloat16, ReduceOp::kSum, out.data(), sources, 1, 1);
    EXPECT_EQ(bfloat_to_float(load<uint16_t>(out.data())), 1.0f + 0x1p-7f);
    // 65504 + 65504 overflows fp16, but the average does not.
    const Memory largest = memory_of<uint16_t>({0x7bff});
    const Operands twice{largest.data(), largest.data()};
    function(DType::kFloat16, ReduceOp::kAvg, out.data(), twice, 1, 2);
    EXPECT_EQ(load<uint16_t>(out.data()), 0x7bff);
  }
}

// A signed or too narrow division would get these quotients wrong.
TEST(ReduceRules, UnsignedAverageIsExact) {
  const Memory words = memory_of<uint32_t>({0xffffffff, 0x80000000, 0x7fffffff, 2, 3});
  const Memory longs = memory_of<uint64_t>({~0ull, 1ull << 63, (1ull << 53) + 1, 2, 3});
  const std::byte* word = words.data();
  const std::byte* wide = longs.data();
  for (ReduceFunction function : functions()) {
    Memory out(words.size());
    function(DType::kUInt32, ReduceOp::kAvg, out.data(), std::span(&word, 1), 5, 3);
    EXPECT_EQ(out, memory_of<uint32_t>({0x55555555, 0x2aaaaaaa, 0x2aaaaaaa, 0, 1}));
    out.resize(longs.size());
    function(DType::kUInt64, ReduceOp::kAvg, out.data(), std::span(&wide, 1), 5, 3);
    EXPECT_EQ(
        out, memory_of<uint64_t>({0x5555555555555555, 0x2aaaaaaaaaaaaaaa, 3002399751580331, 0, 1}));
  }
}

TEST(ReduceRules, BoolsComeOutAsZeroOrOne) {
  const Memory a = memory_of<uint8_t>({0, 0, 2, 255, 128});
  const Memory b = memory_of<uint8_t>({0, 4, 0, 1, 128});
  const Operands sources{a.data(), b.data()};
  const auto any = memory_of<uint8_t>({0, 1, 1, 1, 1});
  const auto all = memory_of<uint8_t>({0, 0, 0, 1, 1});
  for (ReduceFunction function : functions()) {
    Memory out(5);
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kBor}) {
      function(DType::kBool, op, out.data(), sources, 5, 1);
      EXPECT_EQ(out, any) << reduce_op_name(op);
    }
    for (ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kBand}) {
      function(DType::kBool, op, out.data(), sources, 5, 1);
      EXPECT_EQ(out, all) << reduce_op_name(op);
    }
    function(DType::kBool, ReduceOp::kBxor, out.data(), sources, 5, 1);
    EXPECT_EQ(out, memory_of<uint8_t>({0, 1, 1, 0, 0}));
    function(DType::kBool, ReduceOp::kBxor, out.data(), std::span(sources).first(1), 5, 1);
    EXPECT_EQ(out, memory_of<uint8_t>({0, 0, 1, 1, 1}));
  }
}

// Sums of every pair of codes, and every single code. They cover conversions both ways, ties,
// overflow and NaN.
TEST(ReduceRules, EveryFloat8Sum) {
  Memory a(65536);
  Memory b(65536);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::byte>(i >> 8);
    b[i] = static_cast<std::byte>(i);
  }
  for (DType dtype : {DType::kFloat8E4M3FN, DType::kFloat8E5M2}) {
    Memory out(a.size());
    reduce(dtype, ReduceOp::kSum, out.data(), Operands{a.data(), b.data()}, a.size(), 1);
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_EQ(out[i], reference::reduce_one(dtype, ReduceOp::kSum, {&a[i], &b[i]}, 1)[0])
          << dtype_name(dtype) << std::hex << " " << i;
  }
}

// The results equal those of torch.tensor(x).to(dtype) on a CPU.
TEST(ReduceRules, Float8OverflowsAsPyTorchCasts) {
  const Memory fn = memory_of<uint8_t>({0x7e, 0xfe, 0x7e, 0x7f});  // 448, -448, 448, NaN
  const Memory e5 = memory_of<uint8_t>({0x7b, 0xfb, 0x7c, 0x7e});  // 57344, -57344, inf, NaN
  const Operands fn_twice{fn.data(), fn.data()};
  const Operands e5_twice{e5.data(), e5.data()};
  Memory out(4);
  reduce(DType::kFloat8E4M3FN, ReduceOp::kSum, out.data(), fn_twice, 4, 1);
  EXPECT_EQ(out, memory_of<uint8_t>({0x7e, 0xfe, 0x7e, 0x7f}));
  reduce(DType::kFloat8E5M2, ReduceOp::kSum, out.data(), e5_twice, 4, 1);
  EXPECT_EQ(out, memory_of<uint8_t>({0x7c, 0xfc, 0x7c, 0x7f}));
  reduce(DType::kFloat8E5M2, ReduceOp::kAvg, out.data(), e5_twice, 4, 2);
  EXPECT_EQ(out, memory_of<uint8_t>({0x7b, 0xfb, 0x7c, 0x7f}));
}

TEST(ReduceRules, ComplexProducts) {
  const Memory a = memory_of<float>({1, 2, 0, 1});
  const Memory b = memory_of<float>({3, -4, 0, 1});
  for (ReduceFunction function : functions()) {
    Memory out(a.size());
    function(DType::kComplex64, ReduceOp::kProduct, out.data(), Operands{a.data(), b.data()}, 2, 1);
    EXPECT_EQ(out, memory_of<float>({11, 2, -1, 0}));
  }
}

TEST(ReduceRules, RejectsWhatHasNoMeaning) {
  std::byte x{};
  const std::byte* in = &x;
  const char* const no = "does not have the operation";
  EXPECT_DEATH(reduce(DType::kBytes, ReduceOp::kSum, &x, std::span(&in, 1), 1, 1), no);
  EXPECT_DEATH(reduce(DType::kInt8, ReduceOp::kNone, &x, std::span(&in, 1), 1, 1), no);
  EXPECT_DEATH(reduce(DType::kComplex64, ReduceOp::kMin, &x, std::span(&in, 1), 1, 1), no);
  EXPECT_DEATH(reduce(DType::kFloat32, ReduceOp::kBor, &x, std::span(&in, 1), 1, 1), no);
  EXPECT_DEATH(reduce(DType::kInt8, ReduceOp::kSum, &x, {}, 1, 1), "without a source");
  EXPECT_DEATH(reduce(DType::kInt8, ReduceOp::kAvg, &x, std::span(&in, 1), 1, 0), "divisor");
}

}  // namespace
}  // namespace ringdist
