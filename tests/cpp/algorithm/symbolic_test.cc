// Tests of the symbolic checker: each test breaks a good schedule in one way, which the checker
// must report.
#include "support/symbolic.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace ringdist::symbolic {
namespace {

constexpr int64_t kCount = 8;

struct Subject {
  Case what;
  std::vector<Schedule> schedules;

  Step& step(int rank, size_t index) { return schedules[rank].steps[index]; }
  void drop(int rank, size_t index) {
    auto& steps = schedules[rank].steps;
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(index));
  }
  std::string problem() const { return symbolic::problem(what, schedules, 4, 1); }
};

Subject good(std::string_view name, Collective kind, int size = 4,
             std::vector<std::vector<int64_t>> parts = {}) {
  const Algorithm& algorithm = *find_algorithm(name);
  const Case what{kind, size, kCount, 0, algorithm.rank_ordered, std::move(parts)};
  return {what, build_all(algorithm, what)};
}

void expect_problem(const Subject& subject, const std::string& part) {
  EXPECT_NE(subject.problem().find(part), std::string::npos) << subject.problem();
}

TEST(Symbolic, AcceptsGoodSchedules) {
  EXPECT_EQ(good("ring", Collective::kAllreduce).problem(), "");
  EXPECT_EQ(good("direct", Collective::kReduceScatter).problem(), "");
}

TEST(Symbolic, SeesADroppedStep) {
  Subject send = good("ring", Collective::kAllreduce);
  send.drop(1, 0);
  expect_problem(send, "rank 1 sends 5 messages to rank 2, which receives 6");
  Subject recv = good("tree", Collective::kBroadcast);
  recv.drop(3, 0);
  expect_problem(recv, "rank 2 sends 1 messages to rank 3, which receives 0");
  Subject copy = good("ring", Collective::kAllgather);
  copy.drop(2, 0);
  expect_problem(copy, "rank 2 element 16: is not what rank 2 brought");
}

TEST(Symbolic, SeesAMissingContribution) {
  Subject subject = good("direct", Collective::kReduceScatter);
  subject.drop(1, 0);  // the send to rank 2
  auto& sources = subject.step(2, 3).sources;
  ASSERT_EQ(sources[1].peer, 1);
  sources.erase(sources.begin() + 1);
  expect_problem(subject, "rank 2 element 0: holds rank 1 0 times");
}

TEST(Symbolic, SeesADoubleContribution) {
  Subject subject = good("ring", Collective::kReduceScatter);
  auto& sources = subject.step(0, 1).sources;
  sources.push_back(sources.back());
  expect_problem(subject, "holds rank 0 2 times");
}

TEST(Symbolic, SeesSwappedSends) {
  Subject subject = good("ring", Collective::kAllreduce);
  std::swap(subject.step(0, 0).range, subject.step(0, 2).range);
  expect_problem(subject, "holds another element");
}

TEST(Symbolic, SeesAnotherOrderOfTheSum) {
  Subject subject = good("direct", Collective::kAllreduce);
  auto& sources = subject.step(0, 3).sources;
  std::swap(sources[1], sources[2]);
  expect_problem(subject, "is not one reduce in rank order");
}

TEST(Symbolic, SeesRanksThatReduceOnTheirOwn) {
  // Each of two ranks adds the other's tensor to its own. The sums are right, but their bits may
  // differ.
  Subject subject{{Collective::kAllreduce, 2, 1, 0, false}, {}};
  const Range all{BufferId::kOutput, 0, 1};
  for (int rank : {0, 1}) {
    Schedule& schedule = subject.schedules.emplace_back();
    schedule.steps.push_back(Step::send(all, {1 - rank}, EdgeKind::kContribution));
    schedule.steps.push_back(Step::reduce(all, {Source{-1, all}, Source{1 - rank, all}}, true));
  }
  expect_problem(subject, "rank 1 element 0: came about otherwise than on rank 0");
}

TEST(Symbolic, SeesAverageDividedNeverOrTwice) {
  Subject never = good("ring", Collective::kAllreduce);
  never.step(0, 5).finish = false;
  expect_problem(never, "is not finished");
  Subject twice = good("ring", Collective::kAllreduce);
  twice.step(0, 1).finish = true;
  expect_problem(twice, "is finished twice");
}

TEST(Symbolic, SeesTurnsAfterNoMessage) {
  Subject later = good("direct", Collective::kAlltoall);
  later.step(0, 0).follows = {static_cast<int>(later.schedules[0].steps.size()) - 1};
  expect_problem(later, "turn after no message");
  Subject receive = good("direct", Collective::kAlltoall);
  receive.schedules[0].steps.back().follows = {0};
  expect_problem(receive, "turn after no message");
}

TEST(Symbolic, SeesWrongMarksCountsAndRanges) {
  Subject edge_kind = good("ring", Collective::kAllgather);
  edge_kind.step(0, 1).edge_kind = EdgeKind::kContribution;
  expect_problem(edge_kind, "another mark");
  Subject count = good("tree", Collective::kBroadcast);
  --count.step(3, 0).range.count;
  expect_problem(count, "which expects 7");
  Subject outside = good("tree", Collective::kBroadcast);
  ++outside.step(3, 0).range.offset;
  expect_problem(outside, "rank 3 step 0: range outside its buffer");
  Subject input = good("ring", Collective::kReduceScatter);
  input.step(0, 1).range = Range{BufferId::kInput, 0, kCount};
  expect_problem(input, "writes the input");
}

TEST(Symbolic, SeesReadsOfWhatNobodyWrote) {
  Subject subject = good("ring", Collective::kReduceScatter);
  subject.step(0, 0).range.buffer = BufferId::kScratch;
  subject.step(0, 0).range.offset = 0;
  expect_problem(subject, "reads what nobody wrote");
}

TEST(Symbolic, SeesAReduceThatIsNotTheRoots) {
  Subject elsewhere = good("ring", Collective::kReduce);
  ASSERT_EQ(elsewhere.step(1, 1).range.buffer, BufferId::kScratch);
  elsewhere.step(1, 1).range.buffer = BufferId::kOutput;
  expect_problem(elsewhere, "rank 1 step 1: writes the output of a rank that is not the root");
  Subject unsent = good("ring", Collective::kReduce);
  unsent.drop(2, 6);
  expect_problem(unsent, "rank 2 sends 0 messages to rank 0, which receives 1");
  unsent.drop(0, 7);  // the root keeps its partial sum of shard 2
  expect_problem(unsent, "rank 0 element 4: is not finished");
  Subject slot = good("ring", Collective::kReduce);
  slot.step(3, 6).range =
      slot.step(3, 4).range;  // the range for the next rank instead of the shard
  expect_problem(slot, "rank 0 element 6: is not finished");
  Subject order = good("direct", Collective::kReduce);
  std::swap(order.step(0, 0).sources[0], order.step(0, 0).sources[3]);
  expect_problem(order, "rank 0 element 0: is not one reduce in rank order");
  Subject missing = good("direct", Collective::kReduce);
  missing.drop(3, 0);
  missing.step(0, 0).sources.pop_back();
  expect_problem(missing, "rank 0 element 0: holds rank 3 0 times");
}

TEST(Symbolic, SeesPartsInTheWrongPlace) {
  Subject gather = good("direct", Collective::kGather);
  std::swap(gather.step(0, 1).range, gather.step(0, 2).range);
  expect_problem(gather, "rank 0 element 16: is not what rank 2 brought");
  Subject scatter = good("direct", Collective::kScatter);
  std::swap(scatter.step(0, 0).range, scatter.step(0, 1).range);
  expect_problem(scatter, "rank 1 element 0: is not what rank 0 brought");
  Subject alltoall = good("direct", Collective::kAlltoall);
  std::swap(alltoall.step(1, 0).range, alltoall.step(1, 1).range);
  expect_problem(alltoall, "rank 2 element 8: is not what rank 1 brought");
  Subject own = good("direct", Collective::kAlltoall);
  own.drop(2, 3);
  expect_problem(own, "rank 2 element 16: is not what rank 2 brought");
  Subject unsent = good("direct", Collective::kScatter);
  unsent.drop(0, 2);
  expect_problem(unsent, "rank 0 sends 0 messages to rank 3, which receives 1");
}

TEST(Symbolic, SeesUnevenPartsThatDoNotFit) {
  const std::vector<std::vector<int64_t>> any{{1, 2, 0}, {0, 4, 3}, {5, 1, 1}};
  EXPECT_EQ(good("direct", Collective::kAlltoall, 3, any).problem(), "");
  Subject count = good("direct", Collective::kAlltoall, 3, any);
  ++count.step(1, 1).range.count;
  expect_problem(count, "rank 1 step 1 sends 1 elements to rank 0 step 4, which expects 0");
  Subject shifted = good("direct", Collective::kAlltoall, 3, any);
  --shifted.step(1, 0).range.offset;
  expect_problem(shifted, "rank 2 element 0: is not what rank 1 brought");
  const std::vector<std::vector<int64_t>> same{{3, 0, 2}, {3, 0, 2}, {3, 0, 2}};
  EXPECT_EQ(good("ring", Collective::kReduceScatter, 3, same).problem(), "");
  Subject scratch = good("ring", Collective::kReduceScatter, 3, same);
  scratch.schedules[1].scratch_count = 1;  // the longest shard has 3
  expect_problem(scratch, "range outside its buffer");
}

TEST(Symbolic, SeesADeadlockAndWhoWaits) {
  Subject subject{{Collective::kBroadcast, 2, 1, 0, false}, {}};
  const Range all{BufferId::kOutput, 0, 1};
  for (int rank : {0, 1}) {
    Schedule& schedule = subject.schedules.emplace_back();
    schedule.steps.push_back(Step::recv(all, 1 - rank, EdgeKind::kResult));
    schedule.steps.push_back(Step::send(all, {1 - rank}, EdgeKind::kResult));
  }
  expect_problem(subject, "deadlock:\n  rank 0 step 0 waits for message 0 of rank 1");
  EXPECT_NE(Checker(subject.what, subject.schedules).run_in_random_order(1).find("deadlock"),
            std::string::npos);
}

TEST(Symbolic, SeesWhatWouldNeedRoomForTwoMessages) {
  Subject subject{{Collective::kBroadcast, 2, 2, 0, false}, {}};
  const Range halves[] = {{BufferId::kOutput, 0, 1}, {BufferId::kOutput, 1, 1}};
  subject.schedules.resize(2);
  for (const Range& half : halves)
    subject.schedules[0].steps.push_back(Step::send(half, {1}, EdgeKind::kResult));
  subject.schedules[1].steps.push_back(Step::send({}, {0}, EdgeKind::kResult));
  subject.schedules[1].steps.push_back(Step::send({}, {0}, EdgeKind::kResult));
  for (const Range& half : halves)
    subject.schedules[1].steps.push_back(Step::recv(half, 0, EdgeKind::kResult));
  subject.schedules[0].steps.push_back(Step::recv({}, 1, EdgeKind::kResult));
  subject.schedules[0].steps.push_back(Step::recv({}, 1, EdgeKind::kResult));
  expect_problem(subject, "in program order: deadlock");
  expect_problem(subject, "rank 1 step 1 waits to send message 1 to rank 0");
}

TEST(Symbolic, SeesALeakyBarrier) {
  Subject round = good("dissemination", Collective::kBarrier);
  for (int rank = 0; rank < 4; ++rank) {
    round.drop(rank, 3);
    round.drop(rank, 2);
  }
  expect_problem(round, "can leave the barrier before all have come");
  // Empty messages leave the rounds unordered. Separate messages per round order them in pairs
  // only.
  Subject empty = good("dissemination", Collective::kBarrier);
  for (int rank = 0; rank < 4; ++rank)
    for (size_t s = 0; s < 4; ++s) empty.step(rank, s).range.count = 0;
  expect_problem(empty, "can leave the barrier before all have come");
  Subject apart = good("dissemination", Collective::kBarrier, 8);
  for (int rank = 0; rank < 8; ++rank) {
    apart.schedules[rank].scratch_count = 4;
    for (size_t s = 0; s < 6; ++s)
      apart.step(rank, s).range.offset = static_cast<int64_t>(s + 1) / 2;
  }
  expect_problem(apart, "can leave the barrier before all have come");
}

}  // namespace
}  // namespace ringdist::symbolic
