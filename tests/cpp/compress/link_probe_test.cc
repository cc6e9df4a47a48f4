// Communication pattern of the link probe. The time that it takes is not asserted.
#include "compress/link_probe.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <stdexcept>

#include "codec/gradient_memory.h"
#include "compress/time_marker.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

RanksOptions of_size(int size) {
  RanksOptions options;
  options.size = size;
  return options;
}

LinkProbe probe_of(Communicator& group, std::atomic<int>* waits = nullptr) {
  LinkProbe::Delegate tools;
  tools.wait = [&group, waits](const Op& op) {
    if (waits) ++*waits;
    group.wait(op, std::nullopt);
  };
  tools.now = host_now;
  return {group.shared_from_this(), std::move(tools)};
}

TEST(LinkProbe, SharesTheMeanOfWhatTheRanksPutIn) {
  Ranks ranks(of_size(3));
  ranks.run([&](int rank) {
    const auto mean = probe_of(ranks[rank]).mean({1.0 * rank, 0.25, -2.0 * rank});
    ASSERT_TRUE(mean.ok()) << mean.error().what();
    EXPECT_EQ(mean.value(), (std::vector<double>{1, 0.25, -2}));
  });
}

TEST(LinkProbe, TimesEachCodecAndPowerSgdOnce) {
  Ranks ranks(of_size(2));
  ranks.run([&](int rank) {
    std::atomic<int> waits = 0;
    LinkProbe probe = probe_of(ranks[rank], &waits);
    const auto latency = probe.latency(host_memory());
    ASSERT_TRUE(latency.ok()) << latency.error().what();
    EXPECT_GT(latency.value(), 0);
    EXPECT_EQ(waits, 6);  // three rounds, each with a barrier and an average
    for (const std::optional<bool> feedback : {std::optional<bool>(), std::optional(true)}) {
      const std::array<std::string, 2> codecs{"none", "int4"};
      const auto costs = probe.codec_seconds(codecs, 0, feedback, host_memory());
      ASSERT_TRUE(costs.ok()) << costs.error().what();
      ASSERT_EQ(costs.value().size(), 2U);
      for (const double cost : costs.value()) EXPECT_GT(cost, 0);
    }
    EXPECT_EQ(waits, 30);
    const auto computed = probe.low_rank_seconds(host_memory());
    ASSERT_TRUE(computed.ok()) << computed.error().what();
    EXPECT_EQ(waits, 36);  // one small and one large matrix
    EXPECT_GT(computed.value().of(1 << 20), computed.value().matrix);
    EXPECT_EQ(probe.low_rank_seconds(host_memory()).value().element, computed.value().element);
    EXPECT_EQ(waits, 36);
  });
}

TEST(LinkProbe, AnUnknownCodecIsRefusedBeforeAnythingIsSent) {
  Ranks ranks(of_size(2));
  const std::array<std::string, 1> codecs{"nobody"};
  const auto costs = probe_of(ranks[0]).codec_seconds(codecs, 0, std::nullopt, host_memory());
  ASSERT_FALSE(costs.ok());
  EXPECT_EQ(costs.error().kind(), ErrorKind::kInvalidArgument);
  EXPECT_EQ(ranks[0].sequence_number(), 0U);
}

TEST(LinkProbe, AFailedGroupIsTold) {
  Ranks ranks(of_size(2));
  ranks.run([&](int rank) {
    if (rank == 1) return ranks[1].abort("enough");
    std::atomic<int> told = 0;
    ranks[0].hooks()->failed.add(1, [&told] { ++told; });
    const auto mean = probe_of(ranks[0]).mean({1});
    ASSERT_FALSE(mean.ok());
    EXPECT_NE(mean.error().message().find("enough"), std::string::npos) << mean.error().what();
    EXPECT_EQ(told, 1);
    EXPECT_FALSE(probe_of(ranks[0]).latency(host_memory()).ok());
    ranks[0].hooks()->failed.remove(1);
  });
}

TEST(LinkProbe, AWaitThatThrowsLeavesTheOpItsMemory) {
  Ranks ranks(of_size(2));
  ranks.run([&](int rank) {
    if (rank == 0) {
      LinkProbe probe(ranks[0].shared_from_this(),
                      {[](const Op&) { throw std::runtime_error("interrupted"); }, host_now});
      EXPECT_THROW((void)probe.mean(std::vector<double>(100000, 1.0)), std::runtime_error);
    } else {
      EXPECT_EQ(probe_of(ranks[1]).mean(std::vector<double>(100000, 3.0)).value()[99999], 2);
    }
    EXPECT_TRUE(probe_of(ranks[rank]).mean({1}).ok());  // runs after the probe
  });
}

}  // namespace
}  // namespace ringdist
