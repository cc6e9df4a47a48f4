// The bytes on the wire, including the frame, must not change. Each example of each codec encodes
// a fixed input to the bytes in golden/<spec>.txt, with "_" for ":" in the spec. These bytes must
// decode to input minus residual. A file contains hex digits, any white space, and comment lines
// that begin with #.
//
// For a new codec, run the test: it prints the bytes. Compare them with the spec before you add
// the file.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "codec/frame.h"
#include "support/source_folder.h"

namespace ringdist {
namespace {

constexpr CodecSeed kGoldenSeed{0x0123456789abcdef, 0xfedcba9876543210};
// The count covers two blocks of 128 and a tail, one block of 256 and a tail, and a tail of 1024.
constexpr int kCount = 300;

// Returns integers below 2^12 times a power of two: 2^-12 for the first 64 elements, doubled for
// each next 64. Every seventh value is zero.
std::vector<float> input() {
  std::vector<float> out(kCount);
  for (int i = 0; i < kCount; ++i)
    out[i] =
        i % 7 == 0 ? 0.0f : std::ldexp(static_cast<float>(i * 3719 % 8191 - 4095), i / 64 - 12);
  return out;
}

std::vector<float> residual() {
  std::vector<float> out(kCount);
  for (int i = 0; i < kCount; ++i) out[i] = std::ldexp(static_cast<float>(i % 5 - 2), -7);
  return out;
}

std::string hex(ConstBytes bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto b = static_cast<unsigned>(bytes[i]);
    out += kDigits[b >> 4];
    out += kDigits[b & 15];
    out += i % 32 == 31 ? '\n' : ' ';
  }
  return out;
}

std::string without_space(const std::string& text) {
  std::string out;
  for (char c : text)
    if (c != ' ' && c != '\n') out += c;
  return out;
}

// Returns the hex digits of a golden file, or "" if there is none.
std::string golden(std::string_view spec) {
  std::string name(spec);
  for (char& c : name)
    if (c == ':') c = '_';
  std::ifstream file(source_folder() / "tests/cpp/codec/golden" / (name + ".txt"));
  std::string out, line;
  while (std::getline(file, line))
    if (!line.starts_with('#')) out += without_space(line);
  return out;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, BytesAreThoseOfTheFile) {
  const CodecPtr codec = parse_codec(GetParam()).value();
  const std::vector<float> in = input();
  std::vector<float> lost = residual();
  std::vector<std::byte> bytes(max_frame_bytes(*codec, kCount, DType::kFloat32));
  bytes.resize(encode_frame(*codec, in, DType::kFloat32, lost, kGoldenSeed, bytes));
  ASSERT_EQ(golden(GetParam()), without_space(hex(bytes))) << "got:\n" << hex(bytes);

  std::vector<float> out(kCount);
  const auto used = decode_frame(*codec, bytes, DType::kFloat32, kGoldenSeed, false, out);
  ASSERT_TRUE(used.ok());
  EXPECT_EQ(used.value(), bytes.size());
  const std::vector<float> before = residual();
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(lost[i], in[i] + before[i] - out[i]) << i;
}

std::vector<std::string> specs() {
  std::vector<std::string> out;
  for (const CodecRow& row : codecs())
    for (std::string_view example : row.examples) out.emplace_back(example);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Registry, Golden, testing::ValuesIn(specs()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

}  // namespace
}  // namespace ringdist
