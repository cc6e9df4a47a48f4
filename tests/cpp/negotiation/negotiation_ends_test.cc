// Negotiations that cannot continue. Every caller gets the reason, and no rank waits without end.
#include <gtest/gtest.h>

#include <stdexcept>

#include "negotiation/named_ranks.h"

namespace ringdist {
namespace {

TEST(NegotiationEnd, ComesWhenARankIsGone) {
  for (const bool closes : {false, true}) {
    NamedRanks ranks(of_size(3));
    ranks.run([&](int rank) {
      std::vector<float> data(3, 1.0f);
      ASSERT_FALSE(ranks.call(rank, sum_of("x", data)));
      if (rank == 2) {
        if (closes) return ranks.close(2);
        return ranks.ranks().context(2).shutdown(/*process_ends=*/true);
      }
      const Error error = ranks.call(rank, sum_of("x", data));
      EXPECT_EQ(error.kind(), ErrorKind::kPeerLost) << error.what();
      EXPECT_NE(error.message().find("rank 2"), std::string::npos) << error.what();
      EXPECT_FALSE(ranks[rank].call(sum_of("y", data), true).ok());
    });
  }
}

TEST(NegotiationEnd, SaysWhatHasNotBeenCalledInTime) {
  RanksOptions options = of_size(2);
  options.timeout = Milliseconds(300);
  NamedRanks ranks(options);
  ranks.run([&](int rank) {
    std::vector<float> data(3, 1.0f);
    const Error error = ranks.call(rank, sum_of(rank == 0 ? "a" : "b", data));
    EXPECT_EQ(error.kind(), ErrorKind::kTimeout) << error.what();
    EXPECT_NE(error.message().find("all ranks to call"), std::string::npos) << error.what();
  });
}

// The other ranks have begun the op by then, and lack the part of this rank.
TEST(NegotiationEnd, OfWhatCannotBeRunEndsOnAllRanks) {
  for (const bool throws : {false, true})
    for (const int culprit : {0, 1}) {
      RanksOptions options = delayed(3, 1, Milliseconds(20));
      options.timeout = std::chrono::minutes(5);  // longer than any test
      NamedRanks ranks(options);
      ranks.run([&](int rank) {
        std::vector<float> data(3, 1.0f);
        NamedCall call = sum_of("x", data);
        if (rank == culprit)
          call.requests = [throws](const ExtrasByRank&) -> Result<std::vector<OpRequest>> {
            if (throws) throw std::runtime_error("there is no memory");
            return Error(ErrorKind::kInvalidArgument, "there is no memory");
          };
        const Error error = ranks.call(rank, std::move(call));
        ASSERT_TRUE(error);
        EXPECT_NE(error.kind(), ErrorKind::kInvalidArgument) << "that is for calls themselves";
        EXPECT_NE(error.message().find("there is no memory"), std::string::npos) << error.what();
        std::vector<float> other(3, 1.0f);
        const Error later =
            run_op(ranks.ranks()[rank], allreduce_request(other, DType::kFloat32, ReduceOp::kSum));
        EXPECT_FALSE(later) << "another group of the process: " << later.what();
      });
    }
}

// A call may consist of one, several or no ops.
TEST(NegotiationEnd, RunsAllOpsOfACall) {
  for (const size_t ops : {0u, 1u, 5u}) {
    NamedRanks ranks(delayed(3, 2));
    ranks.run([&](int rank) {
      std::vector<std::vector<float>> data(ops, std::vector<float>(4, 1.0f));
      CallContent content;
      content.kind = Collective::kBarrier;  // is not fused with others
      content.variant = std::to_string(ops);
      const auto requests = [&data](const ExtrasByRank&) -> Result<std::vector<OpRequest>> {
        std::vector<OpRequest> out;
        for (auto& one : data)
          out.push_back(allreduce_request(one, DType::kFloat32, ReduceOp::kSum));
        return out;
      };
      // Calls with ops run one after another, because they share memory.
      std::vector<std::shared_ptr<Op>> ends;
      for (int i = 0; i < 5; ++i) {  // more than may be in flight
        ends.push_back(ranks[rank]
                           .call({name_of(i), "allreduce", content.describe(), {}, requests}, false)
                           .value());
        if (ops == 0) continue;
        EXPECT_FALSE(ranks.wait(rank, name_of(i), *ends[i]));
      }
      for (int i = 0; i < 5; ++i) EXPECT_FALSE(ranks.wait(rank, name_of(i), *ends[i]));
      for (const auto& one : data) EXPECT_EQ(one[3], 243.0f);  // 3 to the 5th
    });
  }
}

TEST(NegotiationEnd, ThatIsClosedEndsWhatNotAllHaveCalled) {
  NamedRanks ranks(of_size(2));
  ranks.run([&](int rank) {
    std::vector<float> data(3, 1.0f);
    ASSERT_FALSE(ranks.call(rank, sum_of("all", data)));
    const auto end = ranks[rank].call(sum_of(rank == 0 ? "a" : "b", data), false).value();
    ranks.close(rank);
    ASSERT_TRUE(end->finished());
    EXPECT_TRUE(end->error());
  });
}

}  // namespace
}  // namespace ringdist
