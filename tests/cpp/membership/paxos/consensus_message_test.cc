#include "membership/paxos/consensus_message.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

namespace ringdist {
namespace {

Decision some_decision() {
  Decision out;
  out.generation = 4;
  out.after = 99;
  out.proposed = {7, 1};
  out.members = {11, 12, 13};
  out.survivor_count = 2;
  out.newcomers = {{13, "an entry"}};
  out.needs_rendezvous = true;
  out.lost = {{2, LostMember::Cause::kDied}, {3, LostMember::Cause::kSilent}};
  out.first_unfinished = 1234;
  out.store = "host:29500";
  return out;
}

ConsensusMessage some_message(ConsensusMessageKind kind) {
  ConsensusMessage out;
  out.kind = kind;
  out.generation = {3, 99};
  out.ballot = {8, 2};
  out.dead = {2};
  if (kind == ConsensusMessageKind::kPromise) {
    out.accepted = Accepted{{7, 1}, some_decision()};
    out.info = PromiseInfo{1234, "host:29500", true, "host:29501", {{13, "an entry"}}};
    out.info->most = 5;
  }
  if (kind == ConsensusMessageKind::kAccept || kind == ConsensusMessageKind::kDecided)
    out.decision = some_decision();
  if (kind == ConsensusMessageKind::kBegun) {
    out.made_by = some_decision();
    out.generation = out.made_by->id();
  }
  return out;
}

TEST(ConsensusMessage, ComesOutAsItWentIn) {
  for (int kind = 0; kind <= static_cast<int>(ConsensusMessageKind::kBegun); ++kind) {
    const auto message = some_message(static_cast<ConsensusMessageKind>(kind));
    SCOPED_TRACE(message_name(message.kind));
    const auto bytes = encode(message);
    const auto back = decode_consensus(bytes);
    ASSERT_TRUE(back.ok()) << back.error().what();
    EXPECT_EQ(encode(back.value()), bytes);
    EXPECT_EQ(back.value().decision, message.decision);
    EXPECT_EQ(back.value().made_by, message.made_by);
  }
}

TEST(ConsensusMessage, OneThatIsCutOffIsRefused) {
  for (int kind = 0; kind <= static_cast<int>(ConsensusMessageKind::kBegun); ++kind) {
    const auto bytes = encode(some_message(static_cast<ConsensusMessageKind>(kind)));
    for (size_t length = 0; length < bytes.size(); ++length)
      EXPECT_FALSE(decode_consensus(ConstBytes(bytes).first(length)).ok()) << length;
  }
}

TEST(ConsensusMessage, AnyBytesAreAMessageOrAnError) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 20000; ++i) {
    auto bytes = encode(some_message(static_cast<ConsensusMessageKind>(random() % 11)));
    for (int flips = 0; flips < 4; ++flips)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto back = decode_consensus(bytes);
    EXPECT_TRUE(back.ok() || back.error().kind() == ErrorKind::kProtocol);
  }
}

TEST(ConsensusMessage, WhatDoesNotFitTogetherIsRefused) {
  const std::vector<std::function<void(ConsensusMessage&)>> changes = {
      [](auto& message) { message.decision.reset(); },
      [](auto& message) { message.decision->generation = 3; },
      [](auto& message) { message.decision->after = 98; },
      [](auto& message) { message.decision->members.clear(); },
      [](auto& message) { message.decision->survivor_count = 0; },
      [](auto& message) { message.decision->survivor_count = 9; },
      [](auto& message) { message.decision->newcomers.clear(); },
      [](auto& message) { message.decision->members[1] = 11; },
      [](auto& message) { message.info = PromiseInfo{}; },
      [](auto& message) { message.made_by = some_decision(); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    auto message = some_message(ConsensusMessageKind::kAccept);
    ASSERT_TRUE(decode_consensus(encode(message)).ok());
    changes[i](message);
    EXPECT_FALSE(decode_consensus(encode(message)).ok()) << "change " << i;
  }
}

TEST(Decision, ItsMembersAreThoseOfTheGenerationBefore) {
  Decision decision;
  decision.members = {10, 12, 99};
  decision.survivor_count = 2;
  decision.newcomers = {{99, ""}};
  decision.lost = {{1, LostMember::Cause::kDied}};
  EXPECT_TRUE(decision.comes_from({10, 11, 12}));
  EXPECT_FALSE(decision.comes_from({12, 11, 10})) << "another order";
  EXPECT_FALSE(decision.comes_from({10, 11, 12, 13})) << "one is neither lost nor a survivor";
  decision.lost[0].rank = 1 << 30;
  EXPECT_FALSE(decision.comes_from({10, 11, 12})) << "no such rank";
}

TEST(ConsensusMessage, AVoteComesOutAsItWentIn) {
  const std::string text = encode_vote({{7, 1}, some_decision()});
  const auto back = decode_vote(text);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value().ballot, (Ballot{7, 1}));
  EXPECT_EQ(back.value().value, some_decision());
  EXPECT_FALSE(decode_vote(text.substr(0, text.size() - 1)).ok());
  EXPECT_FALSE(decode_vote("").ok());
}

TEST(ConsensusMessage, TwoBallotsMakeTwoNonces) {
  Decision other = some_decision();
  other.proposed = {8, 1};
  EXPECT_NE(nonce_of(some_decision()), nonce_of(other));
  other = some_decision();
  other.after = 98;
  EXPECT_NE(nonce_of(some_decision()), nonce_of(other));
}

}  // namespace
}  // namespace ringdist
