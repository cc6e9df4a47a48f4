#include <gtest/gtest.h>

#include <string>

#include "cuda/nccl/nccl_comms.h"

namespace ringdist::gpu {
namespace {

// Returns the contributions of all ranks, each of which names some ranks.
std::vector<SplitPart> parts_of(const std::vector<std::vector<int>>& named) {
  std::vector<SplitPart> out;
  const int size = static_cast<int>(named.size());
  for (int rank = 0; rank < size; ++rank)
    out.push_back(part_of(rank, size, named[static_cast<size_t>(rank)]));
  return out;
}

TEST(SplitPart, HasRanksInTheOrderThatTheyAreNamedIn) {
  const auto parts = parts_of({{3, 0}, {1}, {3, 0}, {3, 0}});
  EXPECT_EQ(parts[0].color, 0);
  EXPECT_EQ(parts[0].key, 1);
  EXPECT_EQ(parts[0].size, 2);
  EXPECT_EQ(parts[3].color, 0);
  EXPECT_EQ(parts[3].key, 0);
  EXPECT_EQ(parts[1].color, 1);
  EXPECT_EQ(parts[2].color, 4 + 2) << "in none: by itself";
  EXPECT_EQ(parts[2].size, 1);
}

TEST(SplitPart, FitTogetherWhereAllCallTheSame) {
  for (const auto& named : std::vector<std::vector<std::vector<int>>>{{{0}},
                                                                      {{0, 1}, {0, 1}},
                                                                      {{1, 0}, {1, 0}},
                                                                      {{0}, {1}, {2}},
                                                                      {{0, 2}, {1}, {0, 2}},
                                                                      {{1}, {1}, {1}}})
    EXPECT_FALSE(check_parts(parts_of(named)));
}

TEST(SplitPart, NameWhoDoesNotFit) {
  for (const auto& named :
       std::vector<std::vector<std::vector<int>>>{{{0, 1}, {1}},     // one does not take part
                                                  {{0, 1}, {1, 0}},  // both would be first
                                                  {{0, 1}, {0, 1}, {0, 1, 2}},  // another size
                                                  {{0, 1, 2}, {0, 2, 1}, {0, 1, 2}}}) {
    const Error error = check_parts(parts_of(named));
    ASSERT_TRUE(error);
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_NE(error.message().find("split_group: ranks disagree on the parts: rank 0"),
              std::string::npos)
        << error.message();
  }
}

}  // namespace
}  // namespace ringdist::gpu
