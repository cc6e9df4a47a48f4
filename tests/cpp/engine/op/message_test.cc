#include "engine/op/message.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "engine/group/notice.h"

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
  EXPECT_FALSE(parse_header(bytes.first(kShortHeaderBytes), back));  // its fingerprint is missing
  EXPECT_FALSE(parse_header({}, back));
  header.type = static_cast<MessageType>(200);
  EXPECT_FALSE(parse_header(header_bytes(header), back));
}

TEST(Fingerprint, DescribesAnyBytes) {
  Fingerprint print{};
  print.kind = Collective::kAllreduce;
  print.dtype = DType::kFloat32;
  print.reduce_op = ReduceOp::kSum;
  print.count = 1;
  EXPECT_EQ(print.describe(), "all_reduce(float32, 1 element, SUM)");
  print.plan = Fingerprint::plan_part(~uint64_t{0}, 5);
  EXPECT_EQ(print.describe(), "all_reduce(float32, 1 element, SUM, codec int4)");
  const auto seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 1000; ++i) {
    std::array<unsigned char, sizeof(Fingerprint)> bytes;
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    std::memcpy(static_cast<void*>(&print), bytes.data(), bytes.size());
    EXPECT_FALSE(print.describe().empty());
  }
}

TEST(Notice, RoundTripsAndRefusesTruncation) {
  Notice notice;
  notice.kind = NoticeKind::kStalled;
  notice.nonce = 42;
  notice.op = 3;
  notice.ranks = {2, 7};
  notice.text = "why";
  const auto bytes = notice.encode();
  uint64_t first = 0;
  std::memcpy(&first, bytes.data(), sizeof first);
  EXPECT_EQ(first, 42u);  // the control plane asks for the nonce in front
  const auto back = Notice::decode(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->text, "why");
  EXPECT_EQ(back->ranks, (std::vector<int>{2, 7}));
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(Notice::decode(ConstBytes(bytes).first(n))) << n;
}

}  // namespace
}  // namespace ringdist
