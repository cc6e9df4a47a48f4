// Every schedule of the registry as exchanges of streams. A rank waits in each exchange until all
// its messages have moved. All ranks must finish, and messages must meet the right counterparts.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithm/schedule.h"
#include "cuda/stream/stream_schedule.h"
#include "plan/compiled_schedule.h"
#include "plan/round_assignment.h"
#include "support/registry_rows.h"
#include "support/symbolic.h"

namespace ringdist::gpu {
namespace {

using symbolic::Case;

constexpr int64_t kWhole = int64_t{1} << 40;  // a segment that holds a whole step

// Executes the exchanges of all ranks. Each rank is in one exchange at a time.
class Meeting {
 public:
  explicit Meeting(const std::vector<Schedule>& schedules) {
    for (const Schedule& schedule : schedules) compiled_.push_back(compile(schedule, kWhole));
    const RoundAssignment assignment(compiled_, size(), RoundAssignment::SendMode::kMet);
    for (int rank = 0; rank < size(); ++rank) exchanges_.push_back(exchanges_of(assignment, rank));
    at_.resize(exchanges_.size());
    posted_.resize(exchanges_.size());
  }

  // Returns "" or the first problem.
  std::string problem() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < size(); ++rank) arrive(rank);
      for (int rank = 0; rank < size(); ++rank)
        if (const size_t at = at_[index(rank)]; at < exchanges_[index(rank)].size())
          if (all_meet(rank)) {
            ++at_[index(rank)];
            moved = true;
          }
    }
    for (int rank = 0; rank < size(); ++rank)
      if (at_[index(rank)] < exchanges_[index(rank)].size())
        return "rank " + std::to_string(rank) + " waits for ever in exchange " +
               std::to_string(at_[index(rank)]);
    return order_problem();
  }
  size_t most_exchanges() const {
    size_t most = 0;
    for (const auto& exchanges : exchanges_) most = std::max(most, exchanges.size());
    return most;
  }

 private:
  using Pair = std::pair<int, int>;  // from, to

  static size_t index(int rank) { return static_cast<size_t>(rank); }
  int size() const { return static_cast<int>(compiled_.size()); }
  const Exchange& head(int rank) const { return exchanges_[index(rank)][at_[index(rank)]]; }
  const EdgeId& sent(int rank, ExchangeMessage message) const {
    return compiled_[index(rank)]->steps[index(message.step)].out[index(message.slot)];
  }
  const EdgeId& received(int rank, ExchangeMessage message) const {
    return compiled_[index(rank)]->steps[index(message.step)].in[index(message.slot)];
  }

  void arrive(int rank) {
    if (at_[index(rank)] >= exchanges_[index(rank)].size()) return;
    if (std::exchange(posted_[index(rank)], at_[index(rank)] + 1) == at_[index(rank)] + 1) return;
    for (const ExchangeMessage& message : head(rank).sends)
      sends_[{rank, sent(rank, message).peer}].push_back(sent(rank, message).edge);
    for (const ExchangeMessage& message : head(rank).receives)
      receives_[{received(rank, message).peer, rank}].push_back(received(rank, message).edge);
  }
  // True if all messages that the rank has posted have counterparts.
  bool all_meet(int rank) {
    for (const ExchangeMessage& message : head(rank).sends) {
      const Pair pair{rank, sent(rank, message).peer};
      if (receives_[pair].size() < sends_[pair].size()) return false;
    }
    for (const ExchangeMessage& message : head(rank).receives) {
      const Pair pair{received(rank, message).peer, rank};
      if (sends_[pair].size() < receives_[pair].size()) return false;
    }
    return true;
  }
  std::string order_problem() const {
    return sends_ == receives_ ? "" : "messages that are not for each other meet";
  }

  std::vector<std::shared_ptr<const CompiledSchedule>> compiled_;
  std::vector<std::vector<Exchange>> exchanges_;
  std::vector<size_t> at_;
  std::vector<size_t> posted_;
  std::map<Pair, std::vector<uint32_t>> sends_;
  std::map<Pair, std::vector<uint32_t>> receives_;
};

class StreamExchanges : public testing::TestWithParam<test::RegistryRow> {};

std::vector<std::vector<int>> hosts_of_two_and_three(int size) {
  std::vector<std::vector<int>> out;
  for (int rank = 0; rank < size;) {
    auto& host = out.emplace_back();
    for (size_t n = 0; n < 2 + out.size() % 2 && rank < size; ++n) host.push_back(rank++);
  }
  return out;
}

TEST_P(StreamExchanges, OfAllRanksEnd) {
  const auto [algorithm, kind] = GetParam();
  for (int size = 1; size <= symbolic::kMaxSize; size += size < 10 ? 1 : 9)
    for (const bool several : {false, true})
      for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{3} * size + 2}) {
        Case what{kind, size, kind == Collective::kBarrier ? 0 : count, size / 2, false, {}, {}};
        if (several) what.hosts = hosts_of_two_and_three(size);
        Meeting meeting(symbolic::build_all(*algorithm, what));
        ASSERT_EQ(meeting.problem(), "")
            << "size " << size << ", count " << count << (several ? ", several hosts" : "");
      }
}

INSTANTIATE_TEST_SUITE_P(All, StreamExchanges, testing::ValuesIn(test::registry_rows()),
                         test::registry_row_name);

// Few exchanges mean few launches, and few times that ranks wait for each other.
TEST(StreamExchangeCounts, AreThoseOfTheAlgorithms) {
  const auto most = [](std::string_view algorithm, Collective kind, int size) {
    const Case what{kind, size, 8 * size, 0, false, {}, {}};
    Meeting meeting(symbolic::build_all(*find_algorithm(algorithm), what));
    EXPECT_EQ(meeting.problem(), "");
    return meeting.most_exchanges();
  };
  EXPECT_EQ(most("direct", Collective::kAllreduce, 8), 3u);  // the last exchange only consumes
  EXPECT_EQ(most("direct", Collective::kAlltoall, 8), 2u);
  EXPECT_EQ(most("ring", Collective::kAllreduce, 8), 15u);
  EXPECT_EQ(most("ring", Collective::kAllgather, 8), 8u);
}

}  // namespace
}  // namespace ringdist::gpu
