// Complete negotiations drawn from seeds: calls in a different order on each rank, mismatches, and
// ranks that join.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/negotiation.h"
#include "support/topologies.h"

namespace ringdist {
namespace {

// Actions of each rank, in two phases. A rank calls the names in rounds, in its own order, and
// joins after its last round. Its calls may still be open then.
class Script {
 public:
  static constexpr int kPhases = 2;

  Script(NegotiatorWorld& ranks, int names, int most_rounds, bool conflicts)
      : ranks_(ranks), conflicts_(conflicts), lives_(ranks.size()) {
    for (int rank = 0; rank < ranks.size(); ++rank)
      for (auto& calls : lives_[rank].left) {
        const int rounds = 1 + static_cast<int>(ranks.draw(most_rounds));
        for (int round = 0; round < rounds; ++round)
          for (int name = 0; name < names; ++name) calls.push_back({name, round});
        lives_[rank].rounds.push_back(rounds);
      }
  }

  bool is_finished() {
    for (int rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].joins < kPhases) return false;
    return true;
  }
  // The rank makes a call that is allowed, joins, or does nothing.
  void act(int rank) {
    NegotiatorRank& one = ranks_[rank];
    if (one.has_joined || one.joins == kPhases) return;
    auto& left = lives_[rank].left[one.joins];
    if (left.empty()) return one.join();
    const size_t at = ranks_.draw(left.size());
    const auto [name, round] = left[at];
    const bool is_first = std::ranges::none_of(
        left, [name, round](auto o) { return o.name == name && o.round < round; });
    if (!is_first || one.open.contains(text(name))) return;
    left.erase(left.begin() + static_cast<ptrdiff_t>(at));
    make(one, rank, name, round);
  }
  // Number of rounds over both phases, and number of rounds in which ranks disagree on a name.
  int rounds() const {
    int out = 0;
    for (int phase = 0; phase < kPhases; ++phase) out += most_rounds(phase);
    return out;
  }
  int conflicts(int name) {
    int out = 0;
    for (int phase = 0; phase < kPhases; ++phase)
      for (int round = 0; round < most_rounds(phase); ++round) {
        int wrong = 0, right = 0;
        for (int rank = 0; rank < ranks_.size(); ++rank)
          if (lives_[rank].rounds[phase] > round) ++(is_wrong(rank, name, round) ? wrong : right);
        out += wrong > 0 && right > 0 ? 1 : 0;
      }
    return out;
  }
  static std::string text(int name) { return "call " + std::to_string(name); }

 private:
  struct Call {
    int name, round;
  };
  struct Life {
    std::vector<Call> left[kPhases];
    std::vector<int> rounds;
  };
  int most_rounds(int phase) const {
    int out = 0;
    for (const Life& life : lives_) out = std::max(out, life.rounds[phase]);
    return out;
  }
  bool is_wrong(int rank, int name, int round) const {
    return conflicts_ && (name + round) % 5 == 0 && rank % 3 == (name + round) / 5 % 3;
  }
  void make(NegotiatorRank& one, int rank, int name, int round) {
    // Some descriptions change from round to round, equally on all ranks.
    const std::string words =
        (is_wrong(rank, name, round) ? "other " : "sum ") + std::to_string(name % 4 ? 0 : round);
    std::optional<std::vector<int64_t>> extra;
    if (name % 3 == 0) extra.emplace({int64_t{rank} * 100 + round / 2});
    one.call(text(name), described(words, static_cast<uint64_t>(name % 3), 1 + name),
             std::move(extra));
  }

  NegotiatorWorld& ranks_;
  const bool conflicts_;
  std::vector<Life> lives_;
};

void run_script(uint64_t seed, bool conflicts) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 drawn(seed);
  const int size = 1 + static_cast<int>(drawn() % 9);
  NegotiatorOptions options;
  options.cache_capacity = std::vector<size_t>{1, 2, 5, 1024}[drawn() % 4];
  options.fusion_bytes = static_cast<int64_t>(drawn() % 20);
  options.batches_in_flight = 1 + static_cast<int>(drawn() % 3);
  NegotiatorWorld ranks(test::runs_of_ranks(size, 1 + static_cast<int>(drawn() % 4)), seed,
                        options);
  const int names = 1 + static_cast<int>(drawn() % 8);
  Script script(ranks, names, 6, conflicts);
  for (int rounds = 0; !script.is_finished(); ++rounds) {
    ASSERT_LT(rounds, 100000) << "nothing happens any more";
    for (int rank = 0; rank < size; ++rank) {
      if (ranks.chance(2)) script.act(rank);
      if (ranks.chance(2)) ranks[rank].flush();
    }
    ranks.step();
  }
  ranks.settle();
  ranks.expect_same_course();
  for (int name = 0; name < names; ++name) {
    const int failures = script.conflicts(name);
    EXPECT_EQ(ranks[0].failures[Script::text(name)], failures);
    EXPECT_EQ(ranks[0].times[Script::text(name)], script.rounds() - failures);
  }
}

TEST(NegotiationCourse, AllRunTheSameInTheSameOrder) {
  for (uint64_t seed = 0; seed < 300; ++seed) run_script(seed, false);
}

TEST(NegotiationCourse, ACallThatRanksDisagreeOnFailsOnAllAndTheRestGoesOn) {
  for (uint64_t seed = 1000; seed < 1300; ++seed) run_script(seed, true);
}

}  // namespace
}  // namespace ringdist
