#include "os/network_interfaces.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

const std::vector<NetworkInterface> kCandidates = {
    {"lo", "127.0.0.1", 8, false, true, true},
    {"eth0", "10.1.2.3", 16, false, true, false},
    {"eth1", "192.168.7.9", 24, false, true, false},
    {"eth10", "10.200.0.1", 24, false, true, false},
    {"ib0", "172.16.0.1", 12, false, false, false},
    {"eth0", "2001:db8:1::5", 64, true, true, false},
    {"eth1", "fe80::7%eth1", 64, true, true, false},
    {"eth2", "fe80::8%eth2", 64, true, true, false},
};

// Returns the addresses that a spec selects, or the error message.
std::string select(const std::string& spec) {
  auto found = select_interfaces(spec, kCandidates);
  if (!found.ok()) return found.error().message();
  std::string out;
  for (const NetworkInterface& i : found.value()) out += (out.empty() ? "" : " ") + i.address;
  return out;
}

TEST(Interfaces, SelectsByNamePrefixAndNetwork) {
  EXPECT_EQ(select("eth1"), "192.168.7.9");  // not eth10
  EXPECT_EQ(select("eth"), "10.1.2.3 192.168.7.9 10.200.0.1");
  EXPECT_EQ(select("10.0.0.0/8"), "10.1.2.3 10.200.0.1");
  EXPECT_EQ(select("10.200.0.0/16, eth0"), "10.200.0.1 10.1.2.3");
  EXPECT_EQ(select("10.1.2.3"), "10.1.2.3");
  EXPECT_EQ(select("2001:db8::/32"), "2001:db8:1::5");
  EXPECT_EQ(select("fe80::/10"), "fe80::7%eth1 fe80::8%eth2");
  EXPECT_EQ(select("eth2"), "fe80::8%eth2");
  EXPECT_EQ(select("::/0"), "2001:db8:1::5");
  EXPECT_EQ(select("0.0.0.0/0"), "10.1.2.3 192.168.7.9 10.200.0.1");
  EXPECT_EQ(select("192.168.7.128/25,eth1,"), "192.168.7.9");
}

TEST(Interfaces, LoopbackOnlyWhenMeant) {
  EXPECT_EQ(select("lo"), "127.0.0.1");
  EXPECT_EQ(select("127.0.0.0/8"), "127.0.0.1");
  EXPECT_NE(select("l").find("no network interface"), std::string::npos);
}

TEST(Interfaces, ErrorListsTheCandidatesAndTheRemedy) {
  std::string text = select("ib0");  // is down
  EXPECT_NE(text.find("eth1 192.168.7.9/24"), std::string::npos) << text;
  EXPECT_NE(text.find("ib0 172.16.0.1/12 (down)"), std::string::npos) << text;
  EXPECT_NE(text.find("Set RINGDIST_SOCKET_IFNAME"), std::string::npos) << text;
}

TEST(Interfaces, FollowsTheRouteToTheStore) {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    auto chosen = choose_interfaces("", host);
    ASSERT_TRUE(chosen.ok()) << chosen.error().what();
    EXPECT_TRUE(chosen.value()[0].loopback) << host;
  }
  auto all = list_interfaces();
  ASSERT_TRUE(all.ok());
  for (const NetworkInterface& i : all.value()) {
    if (i.loopback || i.ipv6 || !i.up) continue;
    auto chosen = choose_interfaces("", i.address);
    ASSERT_TRUE(chosen.ok()) << chosen.error().what();
    EXPECT_EQ(chosen.value()[0].address, i.address);
    EXPECT_FALSE(chosen.value()[0].loopback);
  }
}

TEST(Interfaces, WorksWithoutAStoreHost) {
  auto chosen = choose_interfaces("", "");
  ASSERT_TRUE(chosen.ok()) << chosen.error().what();
  EXPECT_FALSE(chosen.value()[0].address.empty());
}

TEST(Interfaces, UnknownHostIsAnError) {
  auto chosen = choose_interfaces("", "no-such-host.invalid");
  ASSERT_FALSE(chosen.ok());
  EXPECT_NE(chosen.error().message().find("no-such-host.invalid"), std::string::npos);
}

}  // namespace
}  // namespace ringdist
