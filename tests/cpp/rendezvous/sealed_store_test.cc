#include "rendezvous/sealed_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "rendezvous/rendezvous.h"
#include "support/map_store.h"
#include "support/test_key.h"

namespace ringdist {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

class SealedStoreTest : public testing::Test {
 protected:
  const std::shared_ptr<const TlsKey> key_ = key_of(1);
  const std::shared_ptr<MapStore> plain_ = std::make_shared<MapStore>();
  SealedStore store_{plain_, key_, "group"};

  std::vector<std::byte> raw(const std::string& key) { return *plain_->find(key).value(); }
  void expect_refused(Store& store, const std::string& key) {
    const auto got = store.multi_get({key});
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().kind(), ErrorKind::kMismatch);
    EXPECT_NE(got.error().message().find("'" + key + "'"), std::string::npos);
    EXPECT_NE(got.error().message().find("RINGDIST_KEY_FILE"), std::string::npos);
    EXPECT_FALSE(store.compare_set(key, "value", "other").ok());
  }
};

TEST_F(SealedStoreTest, ReturnsWhatWasSet) {
  for (const std::string_view value : {"", "x", "a value of some length, with \0 in it"}) {
    ASSERT_FALSE(store_.set("name", bytes_of(value)));
    EXPECT_EQ(*store_.find("name").value(), bytes_of(value));
    EXPECT_TRUE(is_sealed(raw("name")));
  }
  EXPECT_EQ(store_.add("count", 3).value(), 3);
  EXPECT_FALSE(store_.find("absent").value());
}

TEST_F(SealedStoreTest, ShowsNothingOfTheValue) {
  const std::string_view value = "10.1.0.7:47000 on host alpha";
  ASSERT_FALSE(store_.set("name", bytes_of(value)));
  const auto first = raw("name");
  EXPECT_TRUE(std::ranges::search(first, bytes_of(value.substr(0, 8))).empty());
  ASSERT_FALSE(store_.set("name", bytes_of(value)));
  EXPECT_NE(raw("name"), first) << "an observer sees that the value is the same";
}

TEST_F(SealedStoreTest, RefusesWhatItHasNotSealed) {
  ASSERT_FALSE(store_.set("name", bytes_of("value")));
  const auto sealed = raw("name");
  for (size_t i = 0; i < sealed.size(); ++i) {
    auto changed = sealed;
    changed[i] ^= std::byte{1};
    ASSERT_FALSE(plain_->set("name", changed));
    expect_refused(store_, "name");
    ASSERT_FALSE(plain_->set("name", ConstBytes(sealed).first(i)));
    expect_refused(store_, "name");
  }
  ASSERT_FALSE(plain_->set("name", bytes_of("value")));
  expect_refused(store_, "name");
  ASSERT_FALSE(plain_->set("name", sealed));
  EXPECT_EQ(*store_.find("name").value(), bytes_of("value"));
}

TEST_F(SealedStoreTest, BindsValuesToNameScopeAndKey) {
  ASSERT_FALSE(store_.set("name", bytes_of("value")));
  ASSERT_FALSE(plain_->set("other", raw("name")));
  expect_refused(store_, "other");
  SealedStore of_another_group(plain_, key_, "another group");
  expect_refused(of_another_group, "name");
  SealedStore with_another_key(plain_, key_of(2), "group");
  expect_refused(with_another_key, "name");
}

TEST_F(SealedStoreTest, ComparesAndSets) {
  EXPECT_EQ(store_.compare_set("name", "first", "second").value(), "first") << "there is none";
  EXPECT_FALSE(store_.find("name").value());
  EXPECT_EQ(store_.compare_set("name", "", "first").value(), "first");
  EXPECT_EQ(store_.compare_set("name", "", "second").value(), "first");
  EXPECT_EQ(store_.compare_set("name", "first", "second").value(), "second");
  EXPECT_EQ(*store_.find("name").value(), bytes_of("second"));
}

TEST_F(SealedStoreTest, OneOfManyWritersWins) {
  std::vector<std::string> seen(8);
  {
    std::vector<std::jthread> writers;
    for (size_t i = 0; i < seen.size(); ++i)
      writers.emplace_back(
          [&, i] { seen[i] = store_.compare_set("name", "", std::to_string(i)).value(); });
  }
  EXPECT_EQ(std::ranges::count(seen, seen[0]), static_cast<ptrdiff_t>(seen.size()));
}

// A rank that cannot read its key has no other way.
TEST_F(SealedStoreTest, LeavesWithdrawalsPlain) {
  ASSERT_FALSE(publish_failure(*plain_, 1, {0, 1}, Error(ErrorKind::kSystem, "has no key")));
  Rendezvous other(std::make_shared<SealedStore>(plain_, key_, ""), 0, {0, 1});
  RankInfo entry;
  entry.wire_version = 1;
  ASSERT_FALSE(other.publish(entry));
  const CancellableDeadline soon(Clock::now() + std::chrono::seconds(20));
  const auto found = other.collect(soon);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message().find("has no key"), std::string::npos)
      << found.error().message();
}

// Both sides of each pair of ranks name the other, and what to do.
TEST_F(SealedStoreTest, ARankWithAnotherKeyOrNoneIsNamed) {
  for (const auto& second : {key_of(2), std::shared_ptr<const TlsKey>()}) {
    const auto shared = std::make_shared<MapStore>();
    std::vector<std::unique_ptr<Rendezvous>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.push_back(std::make_unique<Rendezvous>(
          sealed_with(rank == 0 ? key_ : second, shared, ""), rank, std::vector<int>{0, 1}));
      RankInfo entry;
      entry.wire_version = 1;
      entry.size = 2;
      ASSERT_FALSE(ranks.back()->publish(entry));
    }
    for (int rank = 0; rank < 2; ++rank) {
      const CancellableDeadline soon(Clock::now() + std::chrono::seconds(20));
      const auto found = ranks[static_cast<size_t>(rank)]->collect(soon);
      ASSERT_FALSE(found.ok());
      const std::string& text = found.error().message();
      EXPECT_EQ(found.error().ranks(), std::vector<int>{1 - rank}) << text;
      EXPECT_NE(text.find("rank " + std::to_string(1 - rank)), std::string::npos) << text;
      EXPECT_NE(text.find("RINGDIST_KEY_FILE"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace ringdist
