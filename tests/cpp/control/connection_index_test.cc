#include <gtest/gtest.h>

#include "control/connection_manager.h"

namespace ringdist {
namespace {

TEST(ConnectionIndex, KnowsTheConnectionsOfAPeer) {
  const auto make = [](uint64_t key) {
    return ControlConnection(Stream(), LinkKind::kLocal, /*dialed=*/true, key, TimePoint());
  };
  auto first = make(1);
  auto second = make(2);
  auto other = make(3);
  ConnectionIndex index;
  EXPECT_TRUE(index.to(7).empty());
  index.lead_to(7, first);
  index.lead_to(8, other);
  index.lead_to(7, second);
  EXPECT_EQ(second.peer, 7u);
  ASSERT_EQ(index.to(7).size(), 2u);
  EXPECT_EQ(index.to(7)[0], &first) << "the oldest first";
  index.forget(first);
  ASSERT_EQ(index.to(7).size(), 1u);
  EXPECT_EQ(index.to(7)[0], &second);
  index.forget(second);
  index.forget(second);  // forget() accepts unknown connections
  EXPECT_TRUE(index.to(7).empty());
  EXPECT_EQ(index.to(8).size(), 1u);
}

}  // namespace
}  // namespace ringdist
