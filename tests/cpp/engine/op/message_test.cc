#include "engine/op/message.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

namespace ringdist {
namespace {

TEST(MessageHeader, RoundTripsWithAFingerprintOnlyWhereItIsNeeded) {
  MessageHeader header{};
  header.op = 7;
  header.fingerprint.count = 99;
  header.segment = 0;
  EXPECT_EQ(header_bytes(header).size(), sizeof(MessageHeader));
  MessageHeader back{};
  ASSERT_TRUE(parse_header(header_bytes(header), back));
  EXPECT_EQ(back.fingerprint.count, 99);
  header.segment = 1;
  EXPECT_EQ(header_bytes(header).size(), kShortHeaderBytes);
  ASSERT_TRUE(parse_header(header_bytes(header), back));
  EXPECT_EQ(back.op, 7u);
}

TEST(MessageHeader, RefusesOtherLengthsAndTypes) {
  MessageHeader header{};
  const ConstBytes bytes = header_bytes(header);
  MessageHeader back{};
  EXPECT_FALSE(parse_header(bytes.first(bytes.size() - 1), back));
  EXPECT_FALSE(parse_header(bytes.first(kShortHeaderBytes), back));  // the fingerprint is missing
  EXPECT_FALSE(parse_header({}, back));
  header.type = static_cast<MessageType>(200);
  EXPECT_FALSE(parse_header(header_bytes(header), back));
}

}  // namespace
}  // namespace ringdist
