#include "engine/group/notice.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ringdist {
namespace {

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
  EXPECT_EQ(first, 42u);  // the control plane reads the nonce at the front
  const auto back = Notice::decode(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->text, "why");
  EXPECT_EQ(back->ranks, (std::vector<int>{2, 7}));
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(Notice::decode(ConstBytes(bytes).first(n))) << n;
}

}  // namespace
}  // namespace ringdist
