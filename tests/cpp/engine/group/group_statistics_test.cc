#include <gtest/gtest.h>

#include <string>

#include "engine/group/members.h"

namespace ringdist::test {
namespace {

TEST(GroupStatistics, TellAWaitFromWork) {
  Members members(2);
  (void)members[0].allreduce();
  members[0].pass(Milliseconds(40));
  (void)members[1].allreduce();
  members.deliver();
  const std::string first = members[0].group.statistics().json();
  EXPECT_NE(first.find(R"("count":1,"failed":0,"bytes":16,"duration":{"sum":0.040000)"),
            std::string::npos)
      << first;
  EXPECT_NE(first.find(R"("wait":{"sum":0.040000)"), std::string::npos) << first;
  const std::string second = members[1].group.statistics().json();
  EXPECT_NE(second.find(R"("wait":{"sum":0.000000)"), std::string::npos) << second;
  const std::string peers = members[0].host.state.traffic.json(members[0].host.state.now);
  EXPECT_NE(peers.find(R"("where":"pid 101","bytes_sent":16,"bytes_received":16)"),
            std::string::npos)
      << peers;
  members[0].group.fail(kKilled, /*tell_others=*/false);
  (void)members[0].allreduce();
  EXPECT_NE(members[0].group.statistics().json().find(R"("count":2,"failed":1,"bytes":16)"),
            std::string::npos);
}

}  // namespace
}  // namespace ringdist::test
