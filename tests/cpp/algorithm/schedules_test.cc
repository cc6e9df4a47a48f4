// Symbolic execution of every algorithm, for every collective that it supports and for all small
// sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "algorithm/schedule.h"
#include "base/config.h"
#include "support/registry_rows.h"
#include "support/symbolic.h"

namespace ringdist {
namespace {

using symbolic::Case;

#ifdef RINGDIST_SANITIZED
constexpr int kLargest = 12;
#else
constexpr int kLargest = symbolic::kMaxSize;
#endif
constexpr uint64_t kSeed = 20240607;

// True if the count is that of one part, which no algorithm cuts further.
bool has_parts(Collective kind) {
  return std::set{Collective::kAllgather, Collective::kReduceScatter, Collective::kGather,
                  Collective::kScatter, Collective::kAlltoall}
      .contains(kind);
}

bool has_uneven_parts(Collective kind) {
  return std::set{Collective::kAllgather, Collective::kReduceScatter, Collective::kAlltoall}
      .contains(kind);
}

std::set<int64_t> counts(Collective kind, int size) {
  if (kind == Collective::kBarrier) return {0};
  const int64_t n = size;
  // With many ranks, these counts cover all cases.
  if (has_parts(kind) && size > 8) return {0, 1, 3};
  if (kind == Collective::kReduce && size > 8)
    return {1, n + 1};  // one count per root, and there are several roots
  return {0, 1, n - 1, n, n + 1, 3 * n + 2};
}

std::set<int> roots(Collective kind, int size) {
  if (!traits_of(kind).has_root) return {0};
  return {0, 1 % size, size / 2, size - 1};
}

// Returns the layouts to test: one host, and several hosts in different arrangements. Large groups
// use several hosts for hierarchical algorithms only.
std::vector<std::vector<std::vector<int>>> layouts(const Algorithm& algorithm, int size) {
  std::vector<std::vector<std::vector<int>>> out{{}};
  if (size == 1 || (!algorithm.hierarchical && size > 16)) return out;
  const auto by = [&](auto host_of) {
    std::map<int, std::vector<int>> hosts;
    for (int rank = 0; rank < size; ++rank) hosts[host_of(rank)].push_back(rank);
    auto& made = out.emplace_back();
    for (auto& [host, ranks] : hosts) made.push_back(std::move(ranks));
  };
  by([](int rank) { return rank; });
  by([](int rank) { return rank / 2; });
  by([](int rank) {
    int host = 0;
    for (int before = 0; before + host + 1 <= rank; ++host) before += host + 1;
    return host;
  });
  if (size > 3) by([](int rank) { return rank % 3; });
  if (size > 6) by([size](int rank) { return std::max(0, rank - size / 2); });
  return out;
}

// Returns random Case::parts of 0 to 4 elements, a third of them empty.
std::vector<std::vector<int64_t>> random_parts(Collective kind, int size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<int64_t>> out(size, std::vector<int64_t>(size));
  for (auto& row : out)
    for (int64_t& part : row) part = std::max<int64_t>(0, static_cast<int64_t>(random() % 6) - 1);
  if (kind == Collective::kReduceScatter) out.assign(size, out[0]);
  if (kind == Collective::kAllgather)
    for (auto& row : out) row.assign(size, row[0]);
  return out;
}

class Schedules : public testing::TestWithParam<test::RegistryRow> {
 protected:
  void SetUp() override {
    if (has_uneven_parts(GetParam().kind))
      std::printf("parts from seed %llu\n", static_cast<unsigned long long>(parts_seed_));
  }
  // Calls fn for the cases of the row with up to `largest` ranks: of all sizes to 20, and of some.
  template <typename Fn>
  void for_each_case(int largest, Fn fn) {
    const auto [algorithm, kind] = GetParam();
    for (int size = 1; size <= largest; ++size) {
      if (size > 20 && !std::set{24, 31, 32, 33, 47, 64}.contains(size)) continue;
      const bool rank_ordered = algorithm->rank_ordered && size > 1;
      for (const auto& hosts : layouts(*algorithm, size)) {
        for (int64_t count : counts(kind, size))
          for (int root : roots(kind, size))
            fn(Case{kind, size, count, root, rank_ordered, {}, hosts});
        if (!has_uneven_parts(kind)) continue;
        for (int draw = 0; draw < (size > 8 ? 1 : 4); ++draw)
          fn(Case{kind, size, kUnread, 0, rank_ordered,
                  random_parts(kind, size, parts_seed_ + size * 4 + draw), hosts});
      }
    }
  }
  std::vector<Schedule> build(const Case& what) {
    return symbolic::build_all(*GetParam().algorithm, what);
  }
  std::string text(const Case& what) const {
    return "size " + std::to_string(what.size) + ", root " + std::to_string(what.root) +
           ", hosts " + std::to_string(what.hosts.size()) +
           (what.parts.empty() ? ", count " + std::to_string(what.count)
                               : ", parts from seed " + std::to_string(parts_seed_));
  }

  // A count that leads outside every buffer if an algorithm reads it.
  static constexpr int64_t kUnread = int64_t{1} << 40;
  const uint64_t parts_seed_ = std::random_device{}();
};

TEST_P(Schedules, AreRightInAnyOrder) {
  for_each_case(kLargest, [&](const Case& what) {
    const int orders = what.size <= 16 ? 4 : 2;
    ASSERT_EQ(symbolic::problem(what, build(what), orders, kSeed), "") << text(what);
  });
}

TEST_P(Schedules, AreRightWhenCutIntoSegments) {
  for_each_case(std::min(kLargest, 9), [&](const Case& what) {
    for (int64_t segment : {1, 2}) {
      const auto schedules = symbolic::cut(build(what), segment);
      ASSERT_EQ(symbolic::structural_problem(what, schedules), "") << text(what);
      // Program order would deadlock: all segments of a send come before the first receive and
      // fill any channel.
      symbolic::Checker checker(what, schedules);
      for (uint64_t seed = kSeed; seed < kSeed + 3; ++seed)
        ASSERT_EQ(checker.run_in_random_order(seed), "") << text(what) << ", seed " << seed;
    }
  });
}

// The number of steps must not depend on the number of bytes, and may grow at most linearly with
// the ranks.
TEST_P(Schedules, AreShort) {
  const auto [algorithm, kind] = GetParam();
  for (int size = 1; size <= 64; ++size)
    for (const auto& hosts : layouts(*algorithm, size)) {
      Shape shape{0, size, 0, 1000};
      if (!hosts.empty()) shape.topology = Topology::from_hosts(hosts, size);
      const size_t steps = algorithm->build(kind, shape).steps.size();
      EXPECT_LE(steps, static_cast<size_t>((hosts.empty() ? 3 : 8) * size)) << hosts.size();
      shape.count = int64_t{1} << 40;
      EXPECT_EQ(steps, algorithm->build(kind, shape).steps.size());
    }
}

TEST_P(Schedules, ArePure) {
  const auto [algorithm, kind] = GetParam();
  const Case what{kind, 5, 17};
  const auto first = build(what);
  const auto second = build(what);
  for (int rank = 0; rank < what.size; ++rank) {
    ASSERT_EQ(first[rank].steps.size(), second[rank].steps.size());
    for (size_t s = 0; s < first[rank].steps.size(); ++s) {
      EXPECT_EQ(first[rank].steps[s].kind, second[rank].steps[s].kind);
      EXPECT_EQ(first[rank].steps[s].range, second[rank].steps[s].range);
      EXPECT_EQ(first[rank].steps[s].to, second[rank].steps[s].to);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Schedules, testing::ValuesIn(test::registry_rows()),
                         test::registry_row_name);

// Returns the number of elements that the rank sends.
int64_t sent(const Schedule& schedule) {
  int64_t out = 0;
  for (const Step& step : schedule.steps)
    out += step.range.count * static_cast<int64_t>(step.to.size());
  return out;
}

TEST(Volume, AllreduceSendsTwiceItsShareOfTheOthers) {
  for (const char* name : {"ring", "direct"})
    for (int rank = 0; rank < 8; ++rank)
      EXPECT_EQ(sent(find_algorithm(name)->build(Collective::kAllreduce, Shape{rank, 8, 0, 800})),
                2 * 7 * 100);
}

TEST(Volume, ReduceSendsTheTensorOnceAndTheRootLess) {
  const Algorithm* ring = find_algorithm("ring");
  const Algorithm* direct = find_algorithm("direct");
  for (int rank = 0; rank < 8; ++rank) {
    const Shape shape{rank, 8, 3, 800};
    EXPECT_EQ(sent(ring->build(Collective::kReduce, shape)), rank == 3 ? 700 : 800);
    EXPECT_EQ(sent(direct->build(Collective::kReduce, shape)), rank == 3 ? 0 : 800);
    EXPECT_EQ(sent(direct->build(Collective::kGather, shape)), rank == 3 ? 0 : 800);
    EXPECT_EQ(sent(direct->build(Collective::kScatter, shape)), rank == 3 ? 7 * 800 : 0);
    EXPECT_EQ(sent(direct->build(Collective::kAlltoall, shape)), 7 * 800);
  }
}

// Only partial sums need scratch: two of the longest shard or part, whatever the length of the
// tensor.
TEST(Volume, ScratchIsTwoShards) {
  const Algorithm* ring = find_algorithm("ring");
  const auto scratch = [&](Collective kind, const Shape& shape) {
    return ring->build(kind, shape).scratch_count;
  };
  EXPECT_EQ(scratch(Collective::kReduce, Shape{1, 8, 3, 803}), 2 * 101);
  EXPECT_EQ(scratch(Collective::kReduce, Shape{3, 8, 3, 803}), 0);
  EXPECT_EQ(scratch(Collective::kReduce, Shape{0, 2, 1, 803}), 402);
  EXPECT_EQ(scratch(Collective::kReduceScatter, Shape{1, 8, 0, 100}), 2 * 100);
  EXPECT_EQ(scratch(Collective::kReduceScatter, Shape{1, 2, 0, 100}), 0);
  EXPECT_EQ(scratch(Collective::kReduceScatter, Shape{1, 4, 0, 0, {3, 0, 9, 1}}), 2 * 9);
}

// A pair with nothing to send still exchanges a message, which shows that the rank has called.
TEST(Volume, EmptyPartsSendAMessageEach) {
  const Shape shape{1, 3, 0, 0, {0, 0, 5}, {0, 0, 0}};
  int messages = 0;
  for (const Step& step : find_algorithm("direct")->build(Collective::kAlltoall, shape).steps)
    messages += static_cast<int>(step.to.size()) + (step.from >= 0 ? 1 : 0);
  EXPECT_EQ(messages, 4);
}

TEST(Volume, TreeSendsFromTheRootToLogarithmicallyMany) {
  const Algorithm* tree = find_algorithm("tree");
  EXPECT_EQ(sent(tree->build(Collective::kBroadcast, Shape{3, 64, 3, 10})), 6 * 10);
  EXPECT_EQ(tree->build(Collective::kBroadcast, Shape{3, 64, 3, 10}).steps.size(), 1u);
}

TEST(EvenShards, CoverTheCountAndDifferByOneAtMost) {
  for (int size : {1, 2, 3, 7, 64}) {
    for (int64_t count :
         {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{1000003}, int64_t{1} << 50}) {
      const auto bounds = even_shards(count, size);
      ASSERT_EQ(bounds.size(), static_cast<size_t>(size) + 1);
      EXPECT_EQ(bounds.front(), 0);
      EXPECT_EQ(bounds.back(), count);
      for (int r = 0; r < size; ++r) {
        const int64_t expected = count / size + (r < count % size ? 1 : 0);
        EXPECT_EQ(bounds[r + 1] - bounds[r], expected);
      }
    }
  }
}

TEST(PartBounds, AreOfTheGivenPartsOrOfTheCount) {
  const Shape even{0, 3, 0, 5};
  EXPECT_EQ(input_bounds(even), (std::vector<int64_t>{0, 5, 10, 15}));
  EXPECT_EQ(output_bounds(even), input_bounds(even));
  const Shape uneven{0, 3, 0, 5, {2, 0, 7}, {}};
  EXPECT_EQ(input_bounds(uneven), (std::vector<int64_t>{0, 2, 2, 9}));
  EXPECT_EQ(output_bounds(uneven), input_bounds(even));
}

TEST(Registry, FindsByNameAndListsAll) {
  const std::string names = ", " + algorithm_names() + ",";
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_EQ(find_algorithm(algorithm.name), &algorithm);
    EXPECT_FALSE(algorithm.description.empty());
    EXPECT_NE(names.find(", " + std::string(algorithm.name) + ","), std::string::npos) << names;
  }
  EXPECT_EQ(find_algorithm("pigeon"), nullptr);
  EXPECT_FALSE(find_algorithm("ring")->supports(Collective::kBarrier));
  EXPECT_EQ(collective_name(Collective::kReduceScatter), "reduce_scatter");
  EXPECT_EQ(collective_name(Collective::kAlltoall), "all_to_all");
  EXPECT_EQ(collective_name(static_cast<Collective>(99)), "unknown collective");
}

TEST(Registry, TheOptionTakesItsNames) {
  const auto check = [](const std::string& name) {
    return check_forced_algorithm(Config::parse({}, {{"algorithm", name}}).value());
  };
  EXPECT_FALSE(check(""));
  for (const Algorithm& algorithm : algorithms())
    EXPECT_FALSE(check(std::string(algorithm.name))) << algorithm.name;
  EXPECT_EQ(check("pigeon").message(),
            "option algorithm=\"pigeon\" is not valid; accepted: \"\", " + algorithm_names());
}

}  // namespace
}  // namespace ringdist
