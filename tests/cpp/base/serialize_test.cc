#include "base/serialize.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ringdist {
namespace {

std::vector<std::byte> sample() {
  Writer writer;
  writer.put(uint16_t{0x1234}).put_string("ring").put(int64_t{-5}).put_bytes({});
  return writer.take();
}

TEST(Serialize, ReadsWhatWasWritten) {
  const std::vector<std::byte> bytes = sample();
  Reader reader(bytes);
  EXPECT_EQ(reader.get<uint16_t>(), 0x1234);
  EXPECT_EQ(reader.get_string(), "ring");
  EXPECT_EQ(reader.get<int64_t>(), -5);
  EXPECT_TRUE(reader.get_bytes().empty());
  EXPECT_TRUE(reader.ok());
  reader.get<uint8_t>();
  EXPECT_FALSE(reader.ok());
}

TEST(Serialize, IsLittleEndian) {
  const std::vector<std::byte> bytes = sample();
  EXPECT_EQ(bytes[0], std::byte{0x34});
  EXPECT_EQ(bytes[1], std::byte{0x12});
}

// Bytes from the wire may end at any place and have any value.
TEST(Serialize, TruncatedInputIsRememberedNotRead) {
  const std::vector<std::byte> bytes = sample();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<std::byte> some(bytes.begin(), bytes.begin() + static_cast<long>(size));
    Reader reader(some);
    reader.get<uint16_t>();
    reader.get_string();
    reader.get<int64_t>();
    reader.get_bytes();
    EXPECT_FALSE(reader.ok()) << size;
  }
  const std::vector<std::byte> lie(4, std::byte{0xff});  // a string length of 4 GiB
  Reader reader(lie);
  EXPECT_EQ(reader.get_string(), "");
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace ringdist
