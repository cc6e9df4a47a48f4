// Ranks sign what they publish with their certificates.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/rendezvous.h"
#include "support/map_store.h"
#include "support/test_certificate.h"

namespace ringdist {
namespace {

class SignedRendezvous : public testing::Test {
 protected:
  const std::shared_ptr<MapStore> store_ = std::make_shared<MapStore>();

  static RankInfo entry_of(const TlsKey& key) {
    RankInfo out;
    out.wire_version = 1;
    out.context_id = key.draw_id();
    out.size = 2;
    out.key = key.fingerprint();
    return out;
  }
  // Publishes rank 0 with the certificate for all ranks, and rank 1 with another one. Returns what
  // rank 0 gets.
  Result<std::vector<RankInfo>> collect_with(const std::shared_ptr<const TlsKey>& second,
                                             const RankInfo& entry, bool compares = true,
                                             const std::string& group = "dp") const {
    const std::vector<int> members{0, 1};
    const auto any = certificate_of("any");
    Rendezvous first(store_, 0, members, any, compares, "dp");
    Rendezvous other(store_, 1, members, second, compares, group);
    EXPECT_FALSE(first.publish(entry_of(*any)));
    EXPECT_FALSE(other.publish(entry));
    const CancellableDeadline soon(Clock::now() + std::chrono::seconds(20));
    return first.collect(soon);
  }
  static void expect_refused(const Result<std::vector<RankInfo>>& got, std::string_view part) {
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().kind(), ErrorKind::kMismatch);
    EXPECT_EQ(got.error().ranks(), std::vector<int>{1});
    EXPECT_NE(got.error().message().find(part), std::string::npos) << got.error().message();
  }
};

TEST_F(SignedRendezvous, ARankNeedsACertificateForIt) {
  const auto a = certificate_of("a");
  const auto b = certificate_of("b");
  EXPECT_TRUE(collect_with(a, entry_of(*a)).ok());
  expect_refused(collect_with(b, entry_of(*b)),
                 "a value of rank 1 was signed with the certificate of owner 'b' for ranks 2, 5, "
                 "which is not for global rank 1");
  EXPECT_TRUE(collect_with(b, entry_of(*b), /*compares=*/false).ok()) << "ranks have moved";
}

// A member may write the entry of another rank into the store, with its own signature.
TEST_F(SignedRendezvous, AProcessIsThatOfItsCertificate) {
  const auto a = certificate_of("a");
  const auto b = certificate_of("b");
  expect_refused(collect_with(b, entry_of(*a), /*compares=*/false),
                 "the certificate of owner 'b' for ranks 2, 5, which is not that of the process");
}

// Groups with the same members have the same names in the store.
TEST_F(SignedRendezvous, AValueCountsForItsGroup) {
  const auto a = certificate_of("a");
  EXPECT_FALSE(collect_with(a, entry_of(*a), /*compares=*/true, "tp").ok());
}

TEST_F(SignedRendezvous, ProcessesHaveTheirOwnIds) {
  const auto any = certificate_of("any");
  RankInfo entry = entry_of(*any);
  std::vector<RankInfo> both{entry, entry};
  EXPECT_FALSE(compare_rank_infos(both, 0)) << "ranks of one process";
  ++both[1].pid;
  const Error error = compare_rank_infos(both, 0);
  EXPECT_NE(error.message().find("rank 0 and rank 1"), std::string::npos) << error.message();
}

TEST_F(SignedRendezvous, AnotherAuthorityOrNoneIsNamed) {
  const auto other = certificate_of("stranger", "other_ca");
  expect_refused(collect_with(other, entry_of(*other)),
                 "rank 1 has another key or authority than rank 0, or none");
  expect_refused(collect_with(nullptr, entry_of(*other)), "rank 1 has another key or authority");
}

}  // namespace
}  // namespace ringdist
