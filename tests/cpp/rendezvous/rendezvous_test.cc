#include "rendezvous/rendezvous.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "support/map_store.h"

namespace ringdist {
namespace {

CancellableDeadline soon(int milliseconds = 5000) {
  return CancellableDeadline(Clock::now() + std::chrono::milliseconds(milliseconds));
}

RankInfo entry_of(int rank) {
  RankInfo out;
  out.wire_version = 1;
  out.context_id = 100 + rank;
  out.nonce = rank == 0 ? 77 : 0;
  out.size = 3;
  out.pid = 1000 + rank;
  out.host_name = "box";
  out.host_key = rank < 2 ? "first" : "second";
  out.transports = {{"ucx", {std::byte{1}, std::byte{2}}}};
  out.costs.file = "/etc/costs.json";
  out.costs.constants.inside.latency = Duration(123);
  return out;
}

std::vector<std::unique_ptr<Rendezvous>> three(std::shared_ptr<Store> store) {
  std::vector<std::unique_ptr<Rendezvous>> out;
  for (int rank = 0; rank < 3; ++rank)
    out.push_back(std::make_unique<Rendezvous>(store, rank, std::vector<int>{0, 1, 2}));
  return out;
}

TEST(RankInfo, RoundTripsAndRefusesTruncation) {
  const auto bytes = entry_of(1).encode();
  const auto back = RankInfo::decode(bytes, 1);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->context_id, 101u);
  EXPECT_EQ(back->transports, entry_of(1).transports);
  EXPECT_EQ(back->costs.constants, entry_of(1).costs.constants);
  EXPECT_EQ(back->costs.file, "/etc/costs.json");
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(RankInfo::decode(ConstBytes(bytes).first(n), 1)) << n;
}

// An older format may be shorter, a newer one may have any content.
TEST(RankInfo, OfAnotherVersionHasThatAlone) {
  const auto bytes = entry_of(1).encode();
  const auto other = RankInfo::decode(ConstBytes(bytes).first(40), 2);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->wire_version, 1);
  EXPECT_EQ(other->context_id, 0u);
}

TEST(RankInfo, OfImpossibleCostsIsNotRead) {
  for (const double wrong : {-1.0, 1e30, std::numeric_limits<double>::quiet_NaN()}) {
    RankInfo info = entry_of(0);
    info.costs.constants.between.bytes_per_second = wrong;
    EXPECT_FALSE(RankInfo::decode(info.encode(), info.wire_version)) << wrong;
  }
}

TEST(Rendezvous, CollectsAllAndSeesNoEarlierIncarnation) {
  auto store = std::make_shared<MapStore>();
  for (int incarnation = 0; incarnation < 3; ++incarnation) {
    auto ranks = three(store);
    for (int rank = 0; rank < 3; ++rank) {
      RankInfo mine = entry_of(rank);
      mine.nonce += static_cast<uint64_t>(rank == 0 ? incarnation : 0);
      ASSERT_FALSE(ranks[rank]->publish(mine));
    }
    auto entries = ranks[1]->collect(soon());
    ASSERT_TRUE(entries.ok()) << entries.error().what();
    EXPECT_EQ(entries.value()[0].nonce, 77u + incarnation);
  }
}

TEST(Rendezvous, NamesWhoDidNotCome) {
  auto ranks = three(std::make_shared<MapStore>());
  ASSERT_FALSE(ranks[0]->publish(entry_of(0)));
  const Error error = ranks[0]->collect(soon(50)).error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
  EXPECT_NE(error.message().find("rank 1, 2"), std::string::npos) << error.message();
  EXPECT_EQ(error.ranks(), (std::vector<int>{1, 2}));
}

TEST(Rendezvous, NamesWhatDiffers) {
  auto ranks = three(std::make_shared<MapStore>());
  for (int rank = 0; rank < 3; ++rank) {
    RankInfo mine = entry_of(rank);
    if (rank == 2) mine.options_hash = 5;
    mine.options = rank == 2 ? "algorithm=direct" : "algorithm=ring";
    ASSERT_FALSE(ranks[rank]->publish(mine));
  }
  const Error error = ranks[0]->collect(soon()).error();
  ASSERT_TRUE(error);
  EXPECT_NE(error.message().find("algorithm=ring"), std::string::npos);
  EXPECT_NE(error.message().find("algorithm=direct"), std::string::npos);
  EXPECT_EQ(error.ranks(), std::vector<int>{2});
}

// All ranks name the same two: rank 0, which sets the costs, and the rank with other costs.
TEST(Rendezvous, NamesFilesOfOtherCosts) {
  auto ranks = three(std::make_shared<MapStore>());
  for (int rank = 0; rank < 3; ++rank) {
    RankInfo mine = entry_of(rank);
    if (rank == 1) mine.costs = {};  // uses the costs of rank 0
    if (rank == 2) {
      mine.costs.file = "/home/other.json";
      mine.costs.constants.between.latency = std::chrono::microseconds(50);
    }
    ASSERT_FALSE(ranks[rank]->publish(mine));
  }
  for (int rank = 0; rank < 3; ++rank) {
    const Error error = ranks[rank]->collect(soon()).error();
    ASSERT_TRUE(error);
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
    EXPECT_EQ(error.ranks(), std::vector<int>{2});
    for (const char* words :
         {"rank 0 (pid 1000 on host box) plans by the costs of '/etc/costs.json'",
          "rank 2 (pid 1002 on host box) by the costs of '/home/other.json'",
          "between.latency_ns is 50000, not 30000", "RINGDIST_COSTS"})
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
  }
}

TEST(Rendezvous, FilesOfTheSameCostsAreAlike) {
  auto ranks = three(std::make_shared<MapStore>());
  for (int rank = 0; rank < 3; ++rank) {
    RankInfo mine = entry_of(rank);
    mine.costs.file += std::to_string(rank);
    ASSERT_FALSE(ranks[rank]->publish(mine));
  }
  EXPECT_TRUE(ranks[1]->collect(soon()).ok());
}

TEST(Rendezvous, AWithdrawalEndsTheWait) {
  auto ranks = three(std::make_shared<MapStore>());
  ASSERT_FALSE(ranks[0]->publish(entry_of(0)));
  ASSERT_FALSE(ranks[1]->publish(entry_of(1)));
  ASSERT_FALSE(ranks[1]->publish_withdrawal(ErrorKind::kMismatch, "it was told to"));
  const Error error = ranks[0]->collect(soon()).error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error.ranks(), std::vector<int>{1});
  EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
  EXPECT_NE(error.message().find("it was told to"), std::string::npos);
}

// The other ranks get the failure, and the next attempt succeeds.
TEST(Rendezvous, ACreationThatFailedOnOneRankIsCounted) {
  auto store = std::make_shared<MapStore>();
  auto ranks = three(store);
  ASSERT_FALSE(ranks[0]->publish(entry_of(0)));
  ASSERT_FALSE(publish_failure(*store, 1, {0, 1, 2}, Error(ErrorKind::kSystem, "no descriptors")));
  ASSERT_FALSE(ranks[2]->publish(entry_of(2)));
  const Error error = ranks[2]->collect(soon()).error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error.ranks(), std::vector<int>{1});
  EXPECT_NE(error.message().find("no descriptors"), std::string::npos);
  auto again = three(store);
  for (int rank = 0; rank < 3; ++rank) ASSERT_FALSE(again[rank]->publish(entry_of(rank)));
  EXPECT_TRUE(again[1]->collect(soon()).ok());
}

// Two ranks claim the same host and prove it. A rank that does not answer counts as a host of its
// own.
TEST(Rendezvous, HostsAreProven) {
  for (bool answers : {true, false}) {
    auto ranks = three(std::make_shared<MapStore>());
    std::vector<RankInfo> entries;
    for (int rank = 0; rank < 3; ++rank) {
      entries.push_back(entry_of(rank));
      ASSERT_FALSE(ranks[rank]->publish(entries.back()));
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        const auto prove = [&](const RankInfo&) {
          return answers ? Error() : Error(ErrorKind::kPeerLost, "no answer");
        };
        auto topology = ranks[rank]->agree_on_hosts(
            entries, prove, [](const RankInfo&) { return Error(); }, soon());
        ASSERT_TRUE(topology.ok()) << topology.error().what();
        EXPECT_EQ(topology.value().hosts.size(), answers ? 2u : 3u);
        EXPECT_EQ(topology.value().same_host(0, 1), answers);
      });
    for (auto& thread : threads) thread.join();
  }
}

// A dead process never publishes its list, so the ranks that wait for it must learn of the death.
TEST(Rendezvous, ALostAskerEndsTheWait) {
  auto ranks = three(std::make_shared<MapStore>());
  std::vector<RankInfo> entries;
  for (int rank = 0; rank < 3; ++rank) {
    entries.push_back(entry_of(rank));
    ASSERT_FALSE(ranks[rank]->publish(entries.back()));
  }
  const auto lost = [](const RankInfo& entry) {
    return entry.context_id == 100 ? Error(ErrorKind::kPeerLost, "it died") : Error();
  };
  const Error error = ranks[1]
                          ->agree_on_hosts(
                              entries, [](const RankInfo&) { return Error(); }, lost, soon())
                          .error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::kPeerLost);
  EXPECT_EQ(error.ranks(), std::vector<int>{0});
}

RankInfo reached_at(int rank) {
  RankInfo out = entry_of(rank);
  out.tcp_address = "10.0.0." + std::to_string(rank) + ":9";
  out.transports = {{"shm", {std::byte(rank)}}, {"ucx", {std::byte(rank), std::byte{9}}}};
  return out;
}

Error nobody_is_lost(const RankInfo&) { return {}; }

TEST(Rendezvous, AddressesAreExchanged) {
  const auto ranks = three(std::make_shared<MapStore>());
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(ranks[rank]->publish(entry_of(rank)));
  const auto exchange = [&](int rank) {
    auto entries = ranks[rank]->collect(soon()).value();
    EXPECT_FALSE(ranks[rank]->exchange(reached_at(rank), entries, nobody_is_lost, soon()));
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(entries[peer].transports, reached_at(peer).transports);
      EXPECT_EQ(entries[peer].tcp_address, reached_at(peer).tcp_address);
    }
    EXPECT_EQ(entries[2].pid, 1002);
  };
  std::thread first([&] { exchange(0); });
  std::thread second([&] { exchange(1); });
  exchange(2);
  first.join();
  second.join();
}

TEST(Rendezvous, WhoWaitsForAddressesHearsThatTheyDoNotCome) {
  const auto ranks = three(std::make_shared<MapStore>());
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(ranks[rank]->publish(entry_of(rank)));
  auto entries = ranks[0]->collect(soon()).value();
  const auto error_of = [&](const std::function<Error(const RankInfo&)>& lost, int milliseconds) {
    return ranks[0]->exchange(reached_at(0), entries, lost, soon(milliseconds));
  };
  const Error late = error_of(nobody_is_lost, 50);
  EXPECT_EQ(late.kind(), ErrorKind::kTimeout);
  EXPECT_EQ(late.ranks(), (std::vector<int>{1, 2}));
  const auto second_died = [](const RankInfo& entry) {
    return entry.context_id == 102 ? Error(ErrorKind::kPeerLost, "it died") : Error();
  };
  EXPECT_EQ(error_of(second_died, 5000).ranks(), std::vector<int>{2});
  EXPECT_FALSE(ranks[1]->publish_withdrawal(ErrorKind::kSystem, "no UCX here"));
  const Error withdrawn = error_of(nobody_is_lost, 5000);
  EXPECT_EQ(withdrawn.ranks(), std::vector<int>{1});
  EXPECT_NE(withdrawn.message().find("no UCX here"), std::string::npos) << withdrawn.message();
}

}  // namespace
}  // namespace ringdist
