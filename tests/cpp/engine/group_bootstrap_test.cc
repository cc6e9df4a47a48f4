// GroupBootstrap without a group: outcomes of run().
#include "engine/bootstrap/group_bootstrap.h"

#include <gtest/gtest.h>

#include <new>

namespace ringdist::test {
namespace {

// Bootstrap of a group of one rank, which needs no Context.
class FakeBootstrap final : public GroupBootstrap {
 public:
  explicit FakeBootstrap(std::function<Result<ResolvedGroup>()> find)
      : GroupBootstrap(nullptr, "alone", 0, 1, TimePoint::max()), find_(std::move(find)) {}

 private:
  Result<ResolvedGroup> resolve() override { return find_(); }
  Error connect_members(ResolvedGroup&) override { return {}; }

  const std::function<Result<ResolvedGroup>()> find_;
};

// Bootstrap that is cancelled after the group has its name, while it connects to the other
// members. It records the notices and store entries.
class LeftBootstrap final : public GroupBootstrap {
 public:
  explicit LeftBootstrap(NoticeKind how)
      : GroupBootstrap(nullptr, "left", 1, 2, TimePoint::max()), how_(how) {}

  std::vector<Notice> said;
  std::vector<std::string> words;  // reasons published in the store

 private:
  Result<ResolvedGroup> resolve() override {
    ResolvedGroup out;
    out.membership.nonce = 7;
    return out;
  }
  Error connect_members(ResolvedGroup&) override { return {}; }
  Error connect(const ResolvedGroup&) override {
    cancel(how_);
    return Error(ErrorKind::kAborted, "the group was destroyed while it connected");
  }
  void flood(const Notice& notice) override { said.push_back(notice); }
  void publish_withdrawal(ErrorKind, const std::string& why, bool) override {
    words.push_back(why);
  }

  const NoticeKind how_;
};

void nobody_named(uint64_t) { ADD_FAILURE() << "a group of one is named to nobody"; }

bool ended(const GroupBootstrap& formation) {
  return formation.outcome().wait_for(Duration(0)) == std::future_status::ready;
}

TEST(GroupBootstrap, TellsWhatItHasFoundBeforeOthersSeeIt) {
  FakeBootstrap formation([] { return ResolvedGroup(); });
  int told = 0;
  formation.run(nobody_named, [&](const Result<ResolvedGroup>& outcome) {
    EXPECT_TRUE(outcome.ok());
    EXPECT_FALSE(ended(formation)) << "a sibling may be faster than its parent";
    ++told;
  });
  EXPECT_EQ(told, 1);
  ASSERT_TRUE(ended(formation));
  EXPECT_TRUE(formation.outcome().get().ok());
}

TEST(GroupBootstrap, WhatFindThrowsIsItsOutcome) {
  FakeBootstrap formation([]() -> Result<ResolvedGroup> { throw std::bad_alloc(); });
  formation.run(nobody_named,
                [&](const Result<ResolvedGroup>& outcome) { EXPECT_FALSE(outcome.ok()); });
  ASSERT_TRUE(ended(formation));
  EXPECT_FALSE(formation.outcome().get().ok());
}

// The other members have found this one by name and no longer wait for it, so they need a notice
// that it leaves.
TEST(GroupBootstrap, OneThatIsCalledOffOnceNamedSaysThatItLeaves) {
  for (const NoticeKind how : {NoticeKind::kLeave, NoticeKind::kExit}) {
    LeftBootstrap formation(how);
    formation.run([](uint64_t) {},
                  [&](const Result<ResolvedGroup>& outcome) {
                    ASSERT_FALSE(outcome.ok());
                    formation.announce_failure(outcome.error());
                  });
    ASSERT_EQ(formation.said.size(), 1u);
    EXPECT_EQ(formation.said[0].kind, how);
    EXPECT_EQ(formation.said[0].nonce, 7u);
    EXPECT_EQ(formation.said[0].rank, 1);
    EXPECT_EQ(formation.said[0].op, 0u) << "it takes part in none";
    EXPECT_TRUE(formation.words.empty()) << "nobody looks there any more";
  }
}

TEST(GroupBootstrap, SiblingsDoNotWaitForOneWhoseEndWasNotTaken) {
  FakeBootstrap formation([] { return ResolvedGroup(); });
  const auto throws = [](const Result<ResolvedGroup>&) { throw std::bad_alloc(); };
  EXPECT_THROW(formation.run(nobody_named, throws), std::bad_alloc);
  ASSERT_TRUE(ended(formation));
  EXPECT_FALSE(formation.outcome().get().ok());
}

}  // namespace
}  // namespace ringdist::test
