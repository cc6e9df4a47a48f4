// A Formation by itself: what its run() comes to.
#include "engine/formation.h"

#include <gtest/gtest.h>

#include <new>

namespace ringdist::test {
namespace {

// Of a group of one, which needs no Context.
class FakeFormation final : public Formation {
 public:
  explicit FakeFormation(std::function<Result<FoundGroup>()> find)
      : Formation(nullptr, "alone", 0, 1, TimePoint::max()), find_(std::move(find)) {}

 private:
  Result<FoundGroup> find() override { return find_(); }
  Error reach(FoundGroup&) override { return {}; }

  const std::function<Result<FoundGroup>()> find_;
};

void nobody_named(uint64_t) { ADD_FAILURE() << "a group of one is named to nobody"; }

bool ended(const Formation& formation) {
  return formation.outcome().wait_for(Duration(0)) == std::future_status::ready;
}

TEST(Formation, TellsWhatItHasFoundBeforeOthersSeeIt) {
  FakeFormation formation([] { return FoundGroup(); });
  int told = 0;
  formation.run(nobody_named, [&](const Result<FoundGroup>& outcome) {
    EXPECT_TRUE(outcome.ok());
    EXPECT_FALSE(ended(formation)) << "a sibling may be faster than its parent";
    ++told;
  });
  EXPECT_EQ(told, 1);
  ASSERT_TRUE(ended(formation));
  EXPECT_TRUE(formation.outcome().get().ok());
}

TEST(Formation, WhatFindThrowsIsItsOutcome) {
  FakeFormation formation([]() -> Result<FoundGroup> { throw std::bad_alloc(); });
  formation.run(nobody_named,
                [&](const Result<FoundGroup>& outcome) { EXPECT_FALSE(outcome.ok()); });
  ASSERT_TRUE(ended(formation));
  EXPECT_FALSE(formation.outcome().get().ok());
}

TEST(Formation, SiblingsDoNotWaitForOneWhoseEndWasNotTaken) {
  FakeFormation formation([] { return FoundGroup(); });
  const auto throws = [](const Result<FoundGroup>&) { throw std::bad_alloc(); };
  EXPECT_THROW(formation.run(nobody_named, throws), std::bad_alloc);
  ASSERT_TRUE(ended(formation));
  EXPECT_FALSE(formation.outcome().get().ok());
}

}  // namespace
}  // namespace ringdist::test
