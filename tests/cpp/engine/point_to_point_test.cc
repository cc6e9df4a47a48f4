// Sends and receives: their matching, whatever the order and delays of the network, and their end
// if no counterpart comes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/ranks.h"

namespace ringdist {
namespace {

using Data = std::vector<int32_t>;

RanksOptions options(int size, uint64_t seed) {
  RanksOptions out;
  out.size = size;
  out.network = {seed, std::chrono::microseconds(200)};
  out.config = {{"segment_bytes", "8192"}};
  return out;
}

OpRequest message(Data& data, int peer, int32_t tag, bool sends) {
  OpRequest out;
  out.kind = Collective::kPointToPoint;
  out.dtype = DType::kInt32;
  out.reduce_op = ReduceOp::kNone;
  out.count = static_cast<int64_t>(data.size());
  out.envelope = Envelope{peer, tag, sends};
  Buffer& buffer = sends ? out.input : out.output;
  buffer = Buffer(sizeof(int32_t));
  buffer.append(data.data(), out.count);
  return out;
}
OpRequest send(Data& data, int to, int32_t tag = 0) { return message(data, to, tag, true); }
OpRequest recv(Data& data, int from, int32_t tag = 0) { return message(data, from, tag, false); }

Data numbers(int64_t count, int32_t first) {
  Data out(static_cast<size_t>(count));
  for (auto& x : out) x = first++;
  return out;
}

std::shared_ptr<Op> begin(Communicator& communicator, OpRequest request) {
  auto op = communicator.submit(std::move(request), /*will_wait=*/false);
  EXPECT_TRUE(op.ok()) << op.error().what();
  return op.value();
}

TEST(PointToPoint, CarriesAnySize) {
  Ranks ranks(options(2, 1));
  for (const int64_t count : {0, 1, 1000, 1025, 100'003})
    ranks.run([&](int rank) {
      Data mine = numbers(count, rank);
      Data theirs(mine.size(), -1);
      const auto out = begin(ranks[rank], send(mine, 1 - rank));
      const Error error = run_op(ranks[rank], recv(theirs, 1 - rank));
      ASSERT_FALSE(error) << error.what();
      ASSERT_FALSE(wait_op(ranks[rank], *out));
      EXPECT_EQ(theirs, numbers(count, 1 - rank));
    });
  EXPECT_EQ(ranks[0].sequence_number(), 0u);
}

// The other ranks make no call, not even the rank that normally decides which ranks share a host.
TEST(PointToPoint, NeedsOnlyTheTwoRanks) {
  Ranks ranks(options(4, 2));
  ranks.run([&](int rank) {
    Data data = numbers(10, rank == 1 ? 5 : 0);
    if (rank == 1) {
      ASSERT_FALSE(run_op(ranks[rank], send(data, 3)));
    } else if (rank == 3) {
      ASSERT_FALSE(run_op(ranks[rank], recv(data, 1)));
      EXPECT_EQ(data, numbers(10, 5));
    }
  });
}

TEST(PointToPoint, KeepsTheOrderWithinATagOnly) {
  Ranks ranks(options(2, 3));
  ranks.run([&](int rank) {
    std::vector<Data> data;
    std::vector<std::shared_ptr<Op>> ops;
    for (int32_t i = 0; i < 12; ++i) data.push_back(rank == 0 ? numbers(3000, i) : Data(3000));
    for (int32_t i = 0; i < 12; ++i) {
      // One side uses the tags 0, 1, 2 in turn, the other uses each tag several times in a row.
      const int32_t tag = rank == 0 ? i % 3 : 2 - i / 4;
      ops.push_back(begin(ranks[rank], message(data[i], 1 - rank, tag, rank == 0)));
    }
    for (const auto& op : ops) ASSERT_FALSE(wait_op(ranks[rank], *op));
    for (int32_t i = 0; rank == 1 && i < 12; ++i)
      EXPECT_EQ(data[i], numbers(3000, i % 4 * 3 + (2 - i / 4))) << i;
  });
}

TEST(PointToPoint, AnySourceTakesWhatComesAndSaysFromWhom) {
  Ranks ranks(options(4, 4));
  ranks.run([&](int rank) {
    if (rank != 0) {
      Data data = numbers(2000, 100 * rank);
      ASSERT_FALSE(run_op(ranks[rank], send(data, 0, 7)));
      return;
    }
    std::vector<int> seen;
    for (int i = 1; i < 4; ++i) {
      Data data(2000);
      const auto op = begin(ranks[0], recv(data, Envelope::kAnySource, 7));
      ASSERT_FALSE(wait_op(ranks[0], *op));
      EXPECT_EQ(data, numbers(2000, 100 * op->source()));
      seen.push_back(op->source());
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
  });
}

// The receive for any source was posted first, so it gets rank 1's first message.
TEST(PointToPoint, ReceivesAreServedInTheOrderOfTheirCalls) {
  Ranks ranks(options(2, 5));
  ranks.run([&](int rank) {
    Data first = numbers(5, 1);
    Data second = numbers(5, 2);
    const int peer = rank == 0 ? Envelope::kAnySource : 0;
    const auto one = begin(ranks[rank], message(first, peer, 0, rank == 1));
    const auto two = begin(ranks[rank], message(second, 1 - rank, 0, rank == 1));
    ASSERT_FALSE(wait_op(ranks[rank], *one));
    ASSERT_FALSE(wait_op(ranks[rank], *two));
    EXPECT_EQ(first, numbers(5, 1));
    EXPECT_EQ(second, numbers(5, 2));
  });
}

TEST(PointToPoint, SizesThatDifferEndTheGroupOnBothSides) {
  Ranks ranks(options(2, 6));
  ranks.run([&](int rank) {
    Data data(rank == 0 ? 5000 : 4999);
    const auto op = begin(ranks[rank], message(data, 1 - rank, 3, rank == 0));
    Error error = wait_op(ranks[rank], *op);
    if (rank == 0 && !error) {  // the rank had left before the receiver noticed
      Data more(1);
      error = run_op(ranks[0], recv(more, 1));
    }
    ASSERT_TRUE(error);
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
    EXPECT_NE(error.message().find("5000 elements"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("4999 elements"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("tag 3"), std::string::npos) << error.message();
  });
}

TEST(PointToPoint, ATimeoutSaysWhatWasWaitedFor) {
  Ranks ranks(options(2, 7));
  Data data(10);
  OpRequest request = recv(data, 1, 4);
  request.timeout = Milliseconds(300);
  const Error error = run_op(ranks[0], std::move(request));
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
  EXPECT_NE(error.message().find("recv from rank 1, tag 4"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("nothing has been sent"), std::string::npos) << error.message();
}

TEST(PointToPoint, WhoeverWaitsForARankThatHasLeftIsTold) {
  for (const bool sends : {false, true}) {
    Ranks ranks(options(2, 8));
    ranks.run([&](int rank) {
      Data data(100'000);
      // After this message both ranks have met. Data sent before leaving arrives.
      Data last = numbers(3, 9);
      ASSERT_FALSE(run_op(ranks[rank], message(last, 1 - rank, 1, rank == 1)));
      if (rank == 1) return ranks[1].close();
      EXPECT_EQ(last, numbers(3, 9));
      const TimePoint start = Clock::now();
      const Error error = run_op(ranks[0], message(data, 1, 0, sends));
      ASSERT_TRUE(error);
      EXPECT_EQ(error.kind(), ErrorKind::kPeerLost) << error.message();
      EXPECT_NE(error.message().find("left the group"), std::string::npos) << error.message();
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
    });
  }
}

struct Message {
  int from, to;
  int32_t tag;
  int64_t count;
};

// Random messages between all ranks, with allreduces in between, and with little memory for
// grants.
TEST(PointToPoint, RandomTraffic) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr int kSize = 4;
  RanksOptions limited = options(kSize, seed);
  limited.config["memory"] = std::to_string(1 << 20);
  Ranks ranks(limited);
  for (int round = 0; round < 8; ++round) {
    std::vector<Message> messages;
    for (int i = 0; i < 60; ++i) {
      const int from = static_cast<int>(random() % kSize);
      const int to = static_cast<int>((from + 1 + random() % (kSize - 1)) % kSize);
      const int64_t count = int64_t{1} << (random() % 17);
      messages.push_back({from, to, static_cast<int32_t>(random() % 3), count - 1});
    }
    ranks.run([&](int rank) {
      std::vector<Data> data(messages.size());
      std::vector<std::pair<size_t, std::shared_ptr<Op>>> ops;
      for (size_t i = 0; i < messages.size(); ++i) {
        const Message& m = messages[i];
        if (m.from == rank) data[i] = numbers(m.count, static_cast<int32_t>(i));
        if (m.to == rank) data[i].resize(static_cast<size_t>(m.count));
        if (m.from == rank) ops.emplace_back(i, begin(ranks[rank], send(data[i], m.to, m.tag)));
        if (m.to == rank) ops.emplace_back(i, begin(ranks[rank], recv(data[i], m.from, m.tag)));
      }
      std::vector<float> sum(7001, static_cast<float>(rank));
      ASSERT_FALSE(run_op(ranks[rank], allreduce_request(sum, DType::kFloat32, ReduceOp::kSum)));
      EXPECT_EQ(sum[7000], 6.0f);
      for (const auto& [i, op] : ops) {
        const Error error = wait_op(ranks[rank], *op);
        ASSERT_FALSE(error) << error.what();
        EXPECT_EQ(data[i], numbers(messages[i].count, static_cast<int32_t>(i))) << i;
      }
    });
  }
}

}  // namespace
}  // namespace ringdist
