#include <gtest/gtest.h>

#include "engine/bootstrap/group_bootstrap.h"

namespace ringdist {
namespace {

TEST(Ranks, AreNamedInRanges) {
  EXPECT_EQ(format_ranks({3}), "rank 3");
  EXPECT_EQ(format_ranks({0, 1}), "ranks 0 1");
  EXPECT_EQ(format_ranks({0, 2, 3, 4, 9, 10}), "ranks 0 2-4 9 10");
}

TEST(Formed, NamesHostsAndSettingsThatAreNotTheDefaults) {
  std::vector<RankInfo> entries(3);
  for (RankInfo& entry : entries) entry.host_name = "a";
  entries[1].host_name = "b";
  entries[2].tcp_address = "192.0.2.7:4000";
  const auto config = Config::parse({{"RINGDIST_MEMORY", "1MiB"}, {"RINGDIST_UCX", "wheel"}}, {});
  GroupDescriptor membership;
  membership.rank = 2;
  membership.topology = Topology::from_hosts({{0, 2}, {1}}, 3);
  const std::string text = describe_formed("g", config.value(), entries, membership);
  EXPECT_TRUE(
      text.starts_with("group 'g' is formed: rank 2 of 3, ranks 0 2 on host a, rank 1 on "
                       "host b, interface 192.0.2.7"))
      << text;
  EXPECT_TRUE(text.ends_with(", RINGDIST_MEMORY=1MiB")) << text;
}

}  // namespace
}  // namespace ringdist
