// What every codec promises (codec/codec.h), for each row of the registry.
#include "codec/codec.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ringdist {
namespace {

class CodecConformance : public testing::TestWithParam<const CodecRow*> {};

TEST_P(CodecConformance, KeepsItsBoundsAndDecodesWhatItEncodes) {
  const Codec& codec = *GetParam()->codec;
  EXPECT_EQ(codec.name(), GetParam()->name);
  EXPECT_EQ(find_codec(codec.name()), &codec);
  ASSERT_TRUE(codec.supports(DType::kFloat32));
  for (int64_t count : {1, 2, 127, 128, 129, 5000}) {
    std::vector<float> in(count);
    for (int64_t i = 0; i < count; ++i) in[i] = static_cast<float>(i % 17) - 8;
    const auto bytes = std::as_bytes(std::span(in));
    std::vector<std::byte> encoded(codec.max_bytes(count, DType::kFloat32));
    std::vector<float> residual(count, 3.0f);
    const size_t used = codec.encode(bytes, DType::kFloat32, residual, encoded);
    ASSERT_LE(used, encoded.size());
    std::vector<float> out(count, -1.0f);
    const auto to = std::as_writable_bytes(std::span(out));
    ASSERT_FALSE(codec.decode(std::span(encoded).first(used), DType::kFloat32, false, to));
    // What was lost is in the residual: none loses nothing and clears it.
    for (int64_t i = 0; codec.identity() && i < count; ++i) ASSERT_EQ(out[i] + residual[i], in[i]);
    ASSERT_FALSE(codec.decode(std::span(encoded).first(used), DType::kFloat32, true, to));
    for (int64_t i = 0; codec.identity() && i < count; ++i) ASSERT_EQ(out[i], 2 * in[i]);
  }
}

TEST_P(CodecConformance, RefusesBytesOfTheWrongLength) {
  const Codec& codec = *GetParam()->codec;
  std::vector<float> out(100);
  const auto to = std::as_writable_bytes(std::span(out));
  for (size_t size : {size_t{0}, size_t{1}, size_t{399}, size_t{401}}) {
    const std::vector<std::byte> nonsense(size);
    EXPECT_TRUE(codec.decode(nonsense, DType::kFloat32, false, to)) << size;
  }
}

std::vector<const CodecRow*> rows() {
  std::vector<const CodecRow*> out;
  for (const CodecRow& row : codecs()) out.push_back(&row);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Registry, CodecConformance, testing::ValuesIn(rows()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace ringdist
