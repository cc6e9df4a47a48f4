#include <gtest/gtest.h>

#include "engine/bootstrap/rank_info_bootstrap.h"

namespace ringdist {
namespace {

using Names = std::vector<std::string>;

// `transports` is indexed by rank.
bool needs(const std::vector<Names>& transports, const std::vector<std::vector<int>>& hosts,
           const std::string& wanted = "") {
  std::vector<RankInfo> entries;
  for (const Names& names : transports) {
    RankInfo& entry = entries.emplace_back();
    for (const std::string& name : names)
      entry.transports.emplace_back(name, std::vector<std::byte>());
  }
  return needs_late_transports(
      entries, Topology::from_hosts(hosts, static_cast<int>(transports.size())), wanted);
}

const Names kNear{"self", "shm"};
const Names kAll{"self", "shm", "ucx"};
const Names kFar{"self", "ucx"};

TEST(NeedsLateTransports, NotWhereOneHostHasAll) {
  EXPECT_FALSE(needs({kNear, kNear, kNear}, {{0, 1, 2}}));
  EXPECT_FALSE(needs({kNear, kAll}, {{0, 1}}));
  EXPECT_FALSE(needs({kFar, kAll}, {{0, 1}}));
}

TEST(NeedsLateTransports, WhereHostsAreSeveral) {
  EXPECT_TRUE(needs({kNear, kNear, kNear}, {{0, 1}, {2}}));
  EXPECT_TRUE(needs({kAll, kAll, kNear}, {{0, 1}, {2}}));
  EXPECT_FALSE(needs({kAll, kFar, kAll}, {{0, 1}, {2}}));
  EXPECT_FALSE(needs({kNear, kNear}, {{0}, {1}}, "shm")) << "it would not help";
}

TEST(NeedsLateTransports, WhereSomeRankCouldNotOpenWhatItsHostHas) {
  EXPECT_TRUE(needs({kNear, {"self"}}, {{0, 1}}));
  EXPECT_TRUE(needs({{"self"}, {"self"}}, {{0, 1}}));
  EXPECT_TRUE(needs({kNear, kFar, kAll}, {{0, 1, 2}})) << "rank 0 and rank 1";
}

TEST(NeedsLateTransports, WhereItIsTheOneThatIsWanted) {
  EXPECT_TRUE(needs({kNear, kNear}, {{0, 1}}, "ucx"));
  EXPECT_TRUE(needs({kNear, kAll}, {{0, 1}}, "ucx"));
  EXPECT_FALSE(needs({kAll, kAll}, {{0, 1}}, "ucx"));
  EXPECT_FALSE(needs({kNear, kNear}, {{0, 1}}, "shm,ucx"));
  EXPECT_TRUE(needs({kNear, kNear}, {{0}, {1}}, "shm,ucx"));
  EXPECT_TRUE(needs({kAll, kAll}, {{0}, {1}}, "shm,tcp"));
}

}  // namespace
}  // namespace ringdist
