// Memory that runs out on a lane, at each allocation of an op in turn. The group may fail of that;
// then all who should hear of it do, and nothing is kept that was to be given back.
#include <gtest/gtest.h>

#include <string>

#include "engine/group/fake_host.h"
#include "engine/lane/executor.h"
#include "engine/lane/guarded.h"
#include "support/fake_transport.h"
#include "support/replaced_new.h"
#include "support/requests.h"

namespace ringdist::test {
namespace {

constexpr int64_t kSegmentBytes = 4096;
constexpr uint64_t kNonce = 7;

struct Host final : LaneHost {
  bool run_elsewhere(std::function<void()> task) override {
    task();
    return true;
  }
  void flood(const Notice& notice) override {
    auto bytes = notice.encode();  // as the control plane does
    aborts += notice.kind == NoticeKind::kAbort;
  }
  int aborts = 0;
};

// One rank of two, its own lane; the other sends nothing.
struct OneRank {
  OneRank() {
    EXPECT_TRUE(token.take());
    GroupConfig config;
    config.name = "test";
    config.early_window = EarlyCredit::kSegments * kSegmentBytes;
    config.on_failed = [this](const Error&) { ++told; };
    Membership membership;
    membership.nonce = kNonce;
    for (const ContextId context : {1, 2})
      membership.members.push_back({context, &transport, "somewhere"});
    seat = std::make_shared<Seat>(executor, 0, 2, config);
    executor.add(seat);
    executor.form(seat, membership);
  }
  ~OneRank() { executor.remove(seat); }

  std::shared_ptr<Op> make_op(const char* codec) {
    OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
    if (*codec != '\0') {
      auto blocks = std::make_shared<BlockMap>();
      blocks->parts.push_back(
          {0, static_cast<int64_t>(data.size()), parse_codec_pair(codec, 2).value(), nullptr});
      request.blocks = std::move(blocks);
    }
    auto op = planned_op(planner, std::move(request), 1);
    op->started = Clock::now();
    op->deadline = op->started + std::chrono::minutes(1);
    op->when_finished([this] { ++called_back; });
    return op;
  }

  int told = 0;
  int called_back = 0;
  std::vector<float> data = std::vector<float>(10000, 1.0f);
  Statistics statistics;
  Host host;
  Token token;
  Executor executor{statistics, int64_t{1} << 24, token, host};
  FakeTransport transport{[this](Ticket ticket) { executor.on_sent(ticket, {}); }};
  Planner planner{{0, 2, "direct", false, kSegmentBytes}};
  std::shared_ptr<Seat> seat;
};

// True if there were fewer allocations. Without memory for the group's end either, its op ends by
// its deadline.
bool survives(const char* codec, size_t turn, size_t in_a_row) {
  OneRank rank;
  rank.transport.takes_no_memory = true;  // a transport's own is its own tests'
  const auto op = rank.make_op(codec);
  Failures failing{turn, in_a_row};
  {
    const FailingAllocations now(failing);
    rank.executor.enqueue(rank.seat, op);
    const auto work = [&] { return rank.executor.run_work(); };
    while (guarded(rank.executor, work) && !rank.seat->failure()) {  // as the lane does
    }
  }
  const bool failed = failing.over() || failing.count < in_a_row;
  EXPECT_EQ(rank.transport.reserved(), 0) << "memory of the transport's was not given back";
  for (int round = 1; failed && round <= 2; ++round) {  // now there is memory
    rank.executor.set_now(Clock::now() + round * std::chrono::minutes(2));
    rank.executor.tick();
  }
  EXPECT_EQ(op->finished(), failed);
  EXPECT_EQ(rank.called_back, failed ? 1 : 0);
  EXPECT_EQ(rank.host.aborts, failed ? 1 : 0);
  EXPECT_EQ(rank.told, failed ? 1 : 0);
  return !failed;
}

TEST(LaneMemory, AnyAllocationOfAnOpMayFail) {
  for (const char* codec : {"", "int8"}) {
    for (const size_t in_a_row : {1, 2, 3, 8, 64}) {
      size_t turn = 1;
      for (; !testing::Test::HasFailure() && !survives(codec, turn, in_a_row); ++turn)
        ASSERT_LT(turn, 10000u);
      EXPECT_FALSE(testing::Test::HasFailure())
          << in_a_row << " from allocation " << turn << " on, codec '" << codec << "'";
      EXPECT_GT(turn, 10u);
    }
  }
}

}  // namespace
}  // namespace ringdist::test
