// Huffman codes, and the split of floats into exponents, which are coded, and the rest.
#include "kernel/huffman.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernel/split_float.h"

namespace ringdist {
namespace {

constexpr uint64_t kHuffmanSeed = 14;

constexpr size_t kEach = 256;  // symbols of a run

struct Runs {
  std::vector<uint16_t> bits;
  std::vector<std::byte> bytes;
};

Runs encode(std::span<const uint8_t> symbols, const CodeLengths& lengths) {
  Runs out;
  const size_t size = (coded_bits(count_symbols(symbols), lengths) + 7) / 8;
  out.bytes.resize(size + 8);
  HuffmanWriter writer(lengths, out.bytes.data());
  for (size_t at = 0; at < symbols.size(); at += kEach)
    out.bits.push_back(static_cast<uint16_t>(
        writer.put(symbols.subspan(at, std::min(kEach, symbols.size() - at)))));
  writer.finish();
  out.bytes.resize(size);
  return out;
}

std::vector<uint8_t> draw(size_t count, double exponent, std::mt19937& random) {
  std::exponential_distribution<double> distribution(exponent);
  std::vector<uint8_t> out(count);
  for (uint8_t& s : out) s = static_cast<uint8_t>(std::min(255.0, distribution(random)));
  out[0] = 3;
  out[1] = 200;
  return out;
}

TEST(Huffman, DecodesWhatItEncoded) {
  SCOPED_TRACE("seed " + std::to_string(kHuffmanSeed));
  std::mt19937 random(kHuffmanSeed);
  for (size_t count : {2, 3, 4, 5, 255, 256, 257, 1000, 1300, 8191, 8192})
    for (double exponent : {2.0, 0.3, 0.01}) {
      const auto symbols = draw(count, exponent, random);
      const Symbols counts = count_symbols(symbols);
      const CodeLengths lengths = code_lengths(counts);
      ASSERT_TRUE(is_complete(lengths));
      const Runs runs = encode(symbols, lengths);
      std::vector<uint8_t> back(count);
      ASSERT_TRUE(huffman_decode(runs.bytes, lengths, runs.bits, kEach, back));
      EXPECT_EQ(back, symbols);
      for (size_t run = 0; run < runs.bits.size(); ++run)
        for (const int change : {-1, 1}) {
          auto bits = runs.bits;
          bits[run] = static_cast<uint16_t>(bits[run] + change);
          EXPECT_FALSE(huffman_decode(runs.bytes, lengths, bits, kEach, back)) << run;
        }
    }
}

TEST(Huffman, ComesCloseToTheEntropy) {
  std::mt19937 random(kHuffmanSeed);
  const auto symbols = draw(100000, 0.4, random);
  const Symbols counts = count_symbols(symbols);
  double entropy = 0;
  for (uint32_t n : counts)
    if (n != 0) entropy -= n * std::log2(n / 100000.0);
  EXPECT_LE(static_cast<double>(coded_bits(counts, code_lengths(counts))), 1.03 * entropy);
}

TEST(Huffman, LengthsAreLimited) {
  // For Fibonacci counts without a limit, each code is one bit longer than the next one.
  Symbols counts{};
  uint32_t a = 1, b = 1;
  for (size_t i = 0; i < 30; ++i) {
    counts[i * 7] = a;
    b += a;
    a = b - a;
  }
  const CodeLengths lengths = code_lengths(counts);
  EXPECT_TRUE(is_complete(lengths));
  for (size_t i = 0; i < counts.size(); ++i) {
    EXPECT_LE(lengths[i], kMaxCodeBits);
    EXPECT_EQ(lengths[i] != 0, counts[i] != 0);
  }
}

TEST(Huffman, KnowsCodesThatAreNotComplete) {
  CodeLengths lengths{};
  EXPECT_FALSE(is_complete(lengths));
  lengths[5] = 1;
  EXPECT_FALSE(is_complete(lengths));
  lengths[6] = 1;
  EXPECT_TRUE(is_complete(lengths));
  lengths[7] = 12;
  EXPECT_FALSE(is_complete(lengths));
  lengths = {};
  lengths[1] = 13;
  EXPECT_FALSE(is_complete(lengths));
}

TEST(Huffman, OneSymbolTakesNoBits) {
  const Symbols counts = count_symbols(std::vector<uint8_t>(100, 7));
  EXPECT_EQ(coded_bits(counts, code_lengths(counts)), 0u);
}

TEST(Exponent, JoinsWhatItSplit) {
  SCOPED_TRACE("seed " + std::to_string(kHuffmanSeed));
  std::mt19937 random(kHuffmanSeed);
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const size_t size = dtype_size(dtype);
    std::vector<std::byte> in(1001 * size);
    for (std::byte& b : in) b = static_cast<std::byte>(random());
    std::vector<uint8_t> bytes(1001);
    std::vector<std::byte> rest(1001 * (size - 1));
    split_exponents(dtype, in, bytes, rest);
    std::vector<std::byte> out(in.size());
    join_exponents(dtype, bytes, rest, out);
    EXPECT_EQ(out, in) << dtype_name(dtype);
  }
}

TEST(Exponent, TheByteIsTheExponent) {
  const float x = -1.5f;  // bits bfc00000
  std::vector<uint8_t> bytes(1);
  std::vector<std::byte> rest(3);
  split_exponents(DType::kFloat32, std::as_bytes(std::span(&x, 1)), bytes, rest);
  EXPECT_EQ(bytes[0], 127);
  EXPECT_EQ(rest, (std::vector{std::byte{1}, std::byte{0}, std::byte{0x80}}));
}

}  // namespace
}  // namespace ringdist
