// Groups that accept newcomers. The ranks are threads with one Context each.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "control/control_connection.h"
#include "engine/join_client.h"
#include "engine/membership/group_advertisement.h"
#include "engine/op/message.h"
#include "membership/group_consensus.h"
#include "os/socket.h"
#include "support/group_sum.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

// A process that is not a member from the beginning.
class TestNewcomer {
 public:
  explicit TestNewcomer(Ranks& ranks, std::map<std::string, std::string> config = {})
      : ranks_(ranks) {
    ContextOptions wanted;
    wanted.config = config.empty() ? ranks.config() : Config::parse({}, config).value();
    wanted.store_host = "127.0.0.1";
    wanted.transports = {"local"};
    wanted.local_network = ranks.shared_network();
    context_ = Context::create(wanted).value();
    options_.config = wanted.config;
  }
  ~TestNewcomer() { context_->shutdown(); }

  Result<ShrinkResult> join(Milliseconds timeout = std::chrono::seconds(20)) {
    options_.store = ranks_.store();
    JoinClient admission(context_, options_, "a job");
    auto out = admission.wait(Clock::now() + timeout);
    return out ? *out : admission.none_yet();
  }
  Context& context() { return *context_; }

 private:
  Ranks& ranks_;
  std::shared_ptr<Context> context_;
  CommunicatorOptions options_;
};

// Sums until an op fails, then shrinks the group and returns the result. Shrinks in short slices,
// as callers do that can be interrupted: a slice that ends while the group is made is no failure.
ShrinkResult sum_until_the_next_generation(Communicator& group) {
  for (;;) {
    const auto sum = sum_of_ones(group);
    if (sum.ok()) {
      EXPECT_EQ(sum.value(), static_cast<float>(group.size()));
      std::this_thread::sleep_for(Milliseconds(1));
      continue;
    }
    const TimePoint limit = Clock::now() + std::chrono::seconds(20);
    auto out = group.shrink(Milliseconds(1), limit);
    while (!out.ok() && out.error().kind() == ErrorKind::kTimeout && Clock::now() < limit)
      out = group.shrink(Milliseconds(1), limit);
    EXPECT_TRUE(out.ok()) << out.error().what();
    return out.ok() ? out.value() : ShrinkResult{};
  }
}

// Runs the ranks, and the newcomers next to them in their own threads.
void run_with(Ranks& ranks, const std::function<void(int)>& rank,
              const std::vector<std::function<void()>>& beside) {
  std::vector<std::thread> threads;
  for (const auto& one : beside) threads.emplace_back(one);
  ranks.run(rank);
  for (auto& thread : threads) thread.join();
}

void admit(Ranks& ranks) {
  ranks.run([&](int rank) {
    EXPECT_TRUE(sum_of_ones(ranks[rank]).ok());
    const Error error = ranks[rank].admit("a job", "a note");
    EXPECT_FALSE(error) << error.what();
  });
}

TEST(Join, OneComesToTwo) {
  Ranks ranks(of_size(2));
  admit(ranks);
  TestNewcomer newcomer(ranks);
  run_with(ranks,
           [&](int rank) {
             const ShrinkResult out = sum_until_the_next_generation(ranks[rank]);
             ASSERT_NE(out.group, nullptr);
             EXPECT_EQ(out.generation, 1u);
             EXPECT_EQ(out.survivors, (std::vector<int>{0, 1}));
             EXPECT_EQ(out.joined, (std::vector<int>{2}));
             EXPECT_TRUE(out.lost.empty());
             EXPECT_EQ(out.group->rank(), rank);
             EXPECT_EQ(out.group->members(), (std::vector<int>{0, 1, 2}));
             EXPECT_EQ(sum_of_ones(*out.group).value(), 3.0f);
           },
           {[&] {
             const auto out = newcomer.join();
             ASSERT_TRUE(out.ok()) << out.error().what();
             EXPECT_EQ(out.value().generation, 1u);
             EXPECT_EQ(out.value().joined, (std::vector<int>{2}));
             Communicator& group = *out.value().group;
             EXPECT_EQ(group.rank(), 2);
             EXPECT_EQ(group.size(), 3);
             EXPECT_EQ(group.timeout(), ranks[0].timeout());
             EXPECT_EQ(sum_of_ones(group).value(), 3.0f);
           }});
}

// Newcomers that start together join in the same generation.
TEST(Join, FourComeToOne) {
  Ranks ranks(of_size(1));
  admit(ranks);
  std::vector<std::unique_ptr<TestNewcomer>> guests;
  for (int i = 0; i < 4; ++i) guests.push_back(std::make_unique<TestNewcomer>(ranks));
  std::atomic<int> sums{0};
  std::vector<std::function<void()>> beside;
  for (auto& newcomer : guests)
    beside.push_back([&ranks, &sums, newcomer = newcomer.get()] {
      auto out = newcomer->join();
      ASSERT_TRUE(out.ok()) << out.error().what();
      auto group = out.value().group;
      while (group->size() < 5) {
        group = sum_until_the_next_generation(*group).group;
        ASSERT_NE(group, nullptr);
      }
      EXPECT_EQ(sum_of_ones(*group).value(), 5.0f);
      ++sums;
    });
  run_with(
      ranks,
      [&](int) {
        auto group = sum_until_the_next_generation(ranks[0]).group;
        ASSERT_NE(group, nullptr);
        EXPECT_GT(group->size(), 1);
        while (group->size() < 5) {
          group = sum_until_the_next_generation(*group).group;
          ASSERT_NE(group, nullptr);
        }
        EXPECT_EQ(sum_of_ones(*group).value(), 5.0f);
        ++sums;
      },
      beside);
  EXPECT_EQ(sums, 5);
}

// A newcomer must have the same options and wire version as the members.
TEST(Join, OneWithOtherOptionsIsRefusedAndTheOthersDoNotNotice) {
  Ranks ranks(of_size(2));
  admit(ranks);
  TestNewcomer newcomer(ranks, {{"segment_bytes", "65536"}});
  const auto out = newcomer.join();
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().kind(), ErrorKind::kMismatch);
  EXPECT_NE(out.error().message().find("segment_bytes=65536"), std::string::npos)
      << out.error().message();
  ranks.run([&](int rank) { EXPECT_EQ(sum_of_ones(ranks[rank]).value(), 2.0f); });
}

TEST(Join, WhereNobodyAdmitsItTimesOut) {
  Ranks ranks(of_size(2));
  ranks.run([&](int rank) { EXPECT_TRUE(sum_of_ones(ranks[rank]).ok()); });
  TestNewcomer newcomer(ranks);
  const auto out = newcomer.join(Milliseconds(300));
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().kind(), ErrorKind::kTimeout);
  EXPECT_NE(out.error().message().find("torch_ringdist.admit()"), std::string::npos);
  ranks.run([&](int rank) { EXPECT_EQ(sum_of_ones(ranks[rank]).value(), 2.0f); });
}

GroupAdvertisement await_advertisement(Ranks& ranks) {
  for (const TimePoint end = Clock::now() + std::chrono::seconds(10); Clock::now() < end;) {
    const auto value = ranks.store()->find(GroupAdvertisement::key("a job"));
    if (value.ok() && value.value())
      return GroupAdvertisement::decode(*value.value(), kWireVersion).value();
    std::this_thread::sleep_for(Milliseconds(5));
  }
  ADD_FAILURE() << "the group is not advertised";
  return {};
}

// Its join requests come over TCP and have the address of another host. The members dial only the
// source of the connection, where nobody answers. So they go on, and nobody is dialed elsewhere.
TEST(Join, OneThatDoesNotAnswerInterruptsNobody) {
  Ranks ranks(of_size(2));
  admit(ranks);
  const GroupAdvertisement group = await_advertisement(ranks);
  const auto elsewhere = listen_tcp("127.0.0.2", 0);
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.error().what();
  RankInfo entry;
  entry.wire_version = kWireVersion;
  entry.context_id = 77;
  entry.tcp_address = local_address(elsewhere.value()).value();
  entry.options_hash = group.first.options_hash;
  auto body = Writer().put(uint64_t{0}).take();
  const auto info = entry.encode();
  body.insert(body.end(), info.begin(), info.end());
  const auto request =
      MembershipMessage{group.group_id, MembershipMessage::Kind::kJoinRequest, body}.encode();
  std::vector<FramedSocket> streams;
  for (const auto& member : group.members) {
    ConnectAttempt dialed = connect_tcp(member.tcp_address);
    ASSERT_FALSE(dialed.failure);
    streams.emplace_back(std::move(dialed.fd));
    const ControlHello hello{entry.context_id, member.process, group.group_id};
    ASSERT_TRUE(streams.back().send(hello.frame(FrameType::kMembershipHello)));
  }
  run_with(ranks,
           [&](int rank) {
             for (int i = 0; i < 200; ++i) {
               const auto sum = sum_of_ones(ranks[rank]);
               ASSERT_TRUE(sum.ok()) << sum.error().what();
               std::this_thread::sleep_for(Milliseconds(5));
             }
           },
           {[&] {
             for (int i = 0; i < 20; ++i) {
               for (FramedSocket& stream : streams)
                 EXPECT_TRUE(stream.send(make_frame(FrameType::kMembership, request)));
               std::this_thread::sleep_for(Milliseconds(50));
             }
           }});
  EXPECT_FALSE(accept_connection(elsewhere.value()));
}

// The newcomer was admitted but never arrives. The members lose it and continue without it.
TEST(Join, OneThatEndsOnceItWasLetIn) {
  RanksOptions options = of_size(2);
  options.config["peer_timeout"] = "1";
  Ranks ranks(options);
  admit(ranks);
  auto newcomer = std::make_unique<TestNewcomer>(ranks);
  run_with(ranks,
           [&](int rank) {
             ShrinkResult out = sum_until_the_next_generation(ranks[rank]);
             ASSERT_NE(out.group, nullptr);
             EXPECT_EQ(out.joined, (std::vector<int>{2}));
             auto group = out.group;
             out = sum_until_the_next_generation(*group);
             ASSERT_NE(out.group, nullptr);
             ASSERT_EQ(out.lost.size(), 1u);
             EXPECT_EQ(out.lost[0].rank, 2);
             EXPECT_EQ(out.group->size(), 2);
             EXPECT_EQ(sum_of_ones(*out.group).value(), 2.0f);
           },
           {[&] {
             const auto out = newcomer->join();
             EXPECT_TRUE(out.ok()) << out.error().what();
             newcomer->context().shutdown();
           }});
}

// A loss and two newcomers in any order, starting from three members. All processes that remain
// must end in the same group and compute the same sum.
void lose_and_take(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto up_to = [&](uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(0, most)(random);
  };
  Ranks ranks(of_size(3));
  admit(ranks);
  const int victim = static_cast<int>(up_to(2));
  const Duration at = std::chrono::microseconds(up_to(400'000));
  TestNewcomer first(ranks);
  TestNewcomer second(ranks);
  const Duration second_at = std::chrono::microseconds(up_to(300'000));
  std::atomic<int> ended{0};
  std::thread killer([&] {
    std::this_thread::sleep_for(at);
    ranks.context(victim).shutdown();
  });
  // The last generation lacks the victim and contains both newcomers.
  const auto until_all_are = [&](std::shared_ptr<Communicator> group, bool is_victim) {
    for (;;) {
      const auto sum = sum_of_ones(*group);
      if (!sum.ok()) {
        auto next = group->shrink(Milliseconds(20000));
        if (is_victim && !next.ok()) return;
        ASSERT_TRUE(next.ok()) << next.error().what();
        group = next.value().group;
        continue;
      }
      EXPECT_EQ(sum.value(), static_cast<float>(group->size()));
      std::vector<int32_t> done{is_victim ? 100 : 1};
      if (group->size() == 4 &&
          !run_op(*group, allreduce_request(done, DType::kInt32, ReduceOp::kSum)) && done[0] == 4) {
        ++ended;
        return;
      }
    }
  };
  run_with(ranks,
           [&](int rank) {
             std::shared_ptr<Communicator> group(&ranks[rank], [](Communicator*) {});
             until_all_are(group, rank == victim);
           },
           {[&] {
              const auto out = first.join();
              ASSERT_TRUE(out.ok()) << out.error().what();
              until_all_are(out.value().group, false);
            },
            [&] {
              std::this_thread::sleep_for(second_at);
              const auto out = second.join();
              ASSERT_TRUE(out.ok()) << out.error().what();
              until_all_are(out.value().group, false);
            }});
  killer.join();
  EXPECT_EQ(ended, 4);
}

TEST(Join, LossesAndNewcomersInAnyOrder) {
  const uint64_t seeds = wanted_seeds(10);
  for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) lose_and_take(seed);
}

}  // namespace
}  // namespace ringdist
