#include "base/network_costs.h"

#include <gtest/gtest.h>

#include <set>

namespace ringdist {
namespace {

using std::chrono::microseconds;

TEST(LinkConstants, AreAllOfALink) {
  LinkCosts link;
  std::set<std::string_view> names;
  double value = 1000;
  for (const LinkConstant& one : link_constants()) {
    one.set(link, value += 1);
    names.insert(one.name);
  }
  value = 1000;
  for (const LinkConstant& one : link_constants()) EXPECT_EQ(one.get(link), value += 1);
  EXPECT_EQ(names.size(), 5u);
  const LinkCosts nothing;
  EXPECT_NE(link.latency, nothing.latency);
  EXPECT_NE(link.bytes_per_second, nothing.bytes_per_second);
  EXPECT_NE(link.copied_per_second, nothing.copied_per_second);
  EXPECT_NE(link.per_message, nothing.per_message);
  EXPECT_NE(link.framing, nothing.framing);
}

TEST(GroupCosts, TellApart) {
  const NetworkCosts ours = default_costs(1e9, microseconds(50));
  EXPECT_EQ(describe_difference(ours, ours), "");
  NetworkCosts theirs = ours;
  theirs.between.per_message = microseconds(9);
  theirs.between.framing = 0;
  EXPECT_EQ(describe_difference(ours, theirs), "between.per_message_ns is 9000, not 3000");
  theirs.inside.bytes_per_second = 2.5e10;
  EXPECT_EQ(describe_difference(ours, theirs), "inside.bytes_per_second is 2.5e+10, not 2e+11");
}

TEST(GroupCosts, AreBuiltInWhereNoFileIsNamed) {
  EXPECT_EQ(GroupCosts().describe(), "the built-in costs");
  EXPECT_EQ(GroupCosts().constants, default_costs(1e10, microseconds(30)));
  EXPECT_EQ((GroupCosts{.constants = {}, .file = "/a b"}.describe()), "the costs of '/a b'");
}

}  // namespace
}  // namespace ringdist
