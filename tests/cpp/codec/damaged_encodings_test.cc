// Decodes damaged encodings with every codec. Under AddressSanitizer this detects reads outside the
// input.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "codec/frame.h"
#include "support/decode_any.h"

namespace ringdist {
namespace {

// Returns an encoding in the input format of decode_any().
std::vector<uint8_t> encoded(const CodecRow& row, size_t example, bool framed,
                             std::mt19937& random) {
  constexpr size_t kCount = 300;
  const CodecPtr codec = parse_codec(row.examples[example]).value();
  std::vector<float> values(kCount);
  for (float& value : values) value = std::normal_distribution<float>()(random);
  std::vector<std::byte> bytes(max_frame_bytes(*codec, kCount, DType::kFloat32));
  bytes.resize(encode_frame(*codec, values, DType::kFloat32, {}, {1, 2}, bytes));
  std::vector<uint8_t> out{row.wire_id, static_cast<uint8_t>(example),
                           static_cast<uint8_t>(framed ? 4 : 0), kCount & 255, kCount >> 8};
  for (const std::byte byte : bytes) out.push_back(std::to_integer<uint8_t>(byte));
  return out;
}

TEST(DamagedEncodings, EndInValuesOrAnError) {
  constexpr size_t kHead = 5;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const CodecRow& row : codecs())
    for (size_t example = 0; example < row.examples.size(); ++example)
      for (const bool framed : {true, false}) {
        SCOPED_TRACE(std::string(row.examples[example]) + (framed ? " in a frame" : ""));
        const std::vector<uint8_t> whole = encoded(row, example, framed, random);
        for (size_t size = kHead; size <= whole.size(); size += 1 + size / 40)
          EXPECT_TRUE(test::decode_any(std::span(whole).first(size)));
        for (int round = 0; round < 50; ++round) {
          std::vector<uint8_t> spoilt = whole;
          for (int flips = 0; flips < 3; ++flips)
            spoilt[kHead + random() % (spoilt.size() - kHead)] ^= 1 << random() % 8;
          EXPECT_TRUE(test::decode_any(spoilt));
        }
      }
}

}  // namespace
}  // namespace ringdist
