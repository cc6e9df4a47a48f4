#include "negotiation/order/call_messages.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

CallDescription description(const std::string& words) {
  return {"bytes of " + words, words, 3, 40};
}

void expect_same(const CallName& a, const CallName& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.description, b.description);
  EXPECT_EQ(a.description.words, b.description.words);
  EXPECT_EQ(a.description.batch, b.description.batch);
  EXPECT_EQ(a.description.bytes, b.description.bytes);
  EXPECT_EQ(a.description.needs_all, b.description.needs_all);
}

void expect_same(const std::vector<RankExtra>& a, const std::vector<RankExtra>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].rank, b[i].rank);
    EXPECT_EQ(a[i].values, b[i].values);
  }
}

ReadyMessage up_message() {
  ReadyMessage out;
  out.seen = 17;
  out.joined = 5;
  out.ready = {{{9, {}, {}}, 2, {{2, {1, -1}}, {3, {}}}, "", 4},
               {{0, "a name", description("allreduce")}, 1, {}, "rank 1 called it otherwise", {}}};
  return out;
}

DecisionMessage decision() {
  DecisionMessage out;
  out.position = 3;
  out.batches = {
      {{{9, {}, {}}, false, {{0, {7}}}}, {{10, "new", description("broadcast")}, true, {}}},
      {{{4, {}, {}}, false, {}}}};
  out.failed = {{"bad", "rank 0 said this, rank 1 said that"}};
  out.all_joined = 0;
  return out;
}

TEST(Letters, ComeAsTheyWereSent) {
  const ReadyMessage sent = up_message();
  const auto come = ReadyMessage::decode(sent.encode());
  ASSERT_TRUE(come.ok());
  EXPECT_EQ(come.value().seen, sent.seen);
  EXPECT_EQ(come.value().joined, sent.joined);
  ASSERT_EQ(come.value().ready.size(), sent.ready.size());
  for (size_t i = 0; i < sent.ready.size(); ++i) {
    const ReadyCall& one = come.value().ready[i];
    expect_same(one.call, sent.ready[i].call);
    expect_same(one.extras, sent.ready[i].extras);
    EXPECT_EQ(one.rank, sent.ready[i].rank);
    EXPECT_EQ(one.conflict, sent.ready[i].conflict);
    EXPECT_EQ(one.absent, sent.ready[i].absent);
  }
  EXPECT_FALSE(ReadyMessage::decode(ReadyMessage().encode()).value().joined);
}

TEST(Letters, OfDecisionsToo) {
  const DecisionMessage sent = decision();
  const auto come = DecisionMessage::decode(sent.encode(12));
  ASSERT_TRUE(come.ok());
  const auto& [made, received] = come.value();
  EXPECT_EQ(received, 12u);
  EXPECT_EQ(made.position, sent.position);
  EXPECT_EQ(made.all_joined, sent.all_joined);
  ASSERT_EQ(made.batches.size(), sent.batches.size());
  for (size_t i = 0; i < sent.batches.size(); ++i) {
    ASSERT_EQ(made.batches[i].size(), sent.batches[i].size());
    for (size_t j = 0; j < sent.batches[i].size(); ++j) {
      expect_same(made.batches[i][j].call, sent.batches[i][j].call);
      expect_same(made.batches[i][j].extras, sent.batches[i][j].extras);
      EXPECT_EQ(made.batches[i][j].is_new, sent.batches[i][j].is_new);
    }
  }
  ASSERT_EQ(made.failed.size(), 1u);
  EXPECT_EQ(made.failed[0].name, "bad");
  EXPECT_EQ(made.failed[0].why, sent.failed[0].why);
}

TEST(Letters, ThatAreCutOffOrTooLongAreErrors) {
  const auto up = up_message().encode();
  const auto down = decision().encode(1);
  for (size_t size = 0; size < up.size(); ++size)
    EXPECT_FALSE(ReadyMessage::decode(ConstBytes(up).first(size)).ok()) << size;
  for (size_t size = 0; size < down.size(); ++size)
    EXPECT_FALSE(DecisionMessage::decode(ConstBytes(down).first(size)).ok()) << size;
  auto longer = up;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(ReadyMessage::decode(longer).ok());
}

}  // namespace
}  // namespace ringdist
