#include "engine/group/group_descriptor.h"

#include <gtest/gtest.h>

#include <set>

namespace ringdist {
namespace {

TEST(DuplicateNonce, IsOfItsParentGenerationNameAndPlace) {
  GroupDescriptor parent;
  parent.nonce = 77;
  GroupDescriptor other = parent;
  other.nonce = 78;
  GroupDescriptor later = parent;
  later.generation = 1;
  GroupDescriptor rank = parent;
  rank.rank = 3;
  const std::set<uint64_t> all{0,
                               parent.nonce,
                               derived_nonce(parent, "/a", 0),
                               derived_nonce(parent, "/a", 1),
                               derived_nonce(parent, "/b", 0),
                               derived_nonce(other, "/a", 0),
                               derived_nonce(later, "/a", 0)};
  EXPECT_EQ(all.size(), 7u);
  EXPECT_EQ(derived_nonce(rank, "/a", 0), derived_nonce(parent, "/a", 0)) << "on every rank";
}

}  // namespace
}  // namespace ringdist
