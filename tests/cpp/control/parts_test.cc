// Parts of the control plane that do no I/O: frames, the history of departures, and the link
// topology.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "control/control_frames.h"
#include "control/control_groups.h"
#include "control/control_history.h"

namespace ringdist {
namespace {

ConstBytes as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(ControlWire, FramesSurviveAnyCut) {
  auto first = make_frame(FrameType::kDump, "hello");
  auto second = make_frame(FrameType::kHeartbeat);
  std::vector<std::byte> stream(first);
  stream.insert(stream.end(), second.begin(), second.end());
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    FrameReader reader;
    std::vector<std::string> seen;
    for (ConstBytes part : {ConstBytes(stream).first(cut), ConstBytes(stream).subspan(cut)}) {
      reader.append(part);
      for (auto frame = reader.next(); frame.ok() && frame.value(); frame = reader.next())
        seen.push_back(std::to_string(static_cast<int>(frame.value()->type)) +
                       decode_text(frame.value()->body));
    }
    EXPECT_EQ(seen, (std::vector<std::string>{"33hello", "16"}));
  }
}

TEST(ControlWire, RefusesLargeFrames) {
  FrameReader reader;
  reader.set_limit(4);
  reader.append(make_frame(FrameType::kDump, "12345"));
  EXPECT_FALSE(reader.next().ok());
}

TEST(ControlWire, TruncatedBodiesAreNothing) {
  std::string payload = "payload";
  FloodRecord flood{7, 8, as_bytes(payload)};
  auto check = [](const std::vector<std::byte>& frame, auto decode) {
    ConstBytes body = ConstBytes(frame).subspan(5);
    EXPECT_TRUE(decode(body));
    for (size_t n = 0; n < body.size(); ++n) EXPECT_FALSE(decode(body.first(n))) << n;
  };
  check(ControlHello{1, 2, 3}.frame(),
        [](ConstBytes b) { return ControlHello::decode(b).has_value(); });
  check(PeerDeparture{1, "why"}.frame(FrameType::kLost),
        [](ConstBytes b) { return PeerDeparture::decode(b).has_value(); });
  check(flood.frame(), [](ConstBytes b) { return FloodRecord::decode(b).has_value(); });
  check(SnapshotSearch{{1, 2}}.frame(),
        [](ConstBytes b) { return SnapshotSearch::decode(b).has_value(); });
  check(SnapshotAnswer{{1, 2}, 3, "{}", {}}.frame(),
        [](ConstBytes b) { return SnapshotAnswer::decode(b).has_value(); });
}

TEST(ControlWire, ACauseCannotDriveATerminal) {
  auto bytes = PeerDeparture{7, "\x1b[2J" + std::string(10000, 'x')}.frame(FrameType::kLost);
  const auto read = PeerDeparture::decode(ConstBytes(bytes).subspan(5));
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->cause.starts_with("\\x1b[2Jxx")) << read->cause.substr(0, 20);
  EXPECT_LE(read->cause.size(), 4096U + 4);
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(PeerDeparture::decode(ConstBytes(bytes).subspan(5))) << "more than one departure";
}

TEST(ControlHistory, FirstDepartureStays) {
  ControlHistory ledger;
  EXPECT_TRUE(ledger.record_left(1));
  EXPECT_FALSE(ledger.record_lost(1, "died"));
  EXPECT_TRUE(ledger.left(1));
  EXPECT_TRUE(ledger.record_lost(2, "died"));
  EXPECT_EQ(ledger.lost(2), "died");
  EXPECT_FALSE(ledger.departed(3));
}

TEST(ControlHistory, FloodsCountOnceInAnyOrder) {
  ControlHistory ledger;
  TimePoint now = Clock::now();
  std::string text = "x";
  int fresh = 0;
  for (int round = 0; round < 2; ++round)
    for (uint64_t n = 0; n < 5000; ++n)
      fresh += ledger.record_flood({9, n ^ 7, as_bytes(text)}, now);
  EXPECT_EQ(fresh, 5000);
}

TEST(ControlHistory, InventedOriginsAreForgotten) {
  ControlHistory history;
  const TimePoint now = Clock::now();
  std::string text = "x";
  for (uint64_t origin = 0; origin < 65536; ++origin)
    EXPECT_TRUE(history.record_flood({origin, 0, as_bytes(text)}, now));
  EXPECT_FALSE(history.record_flood({99999, 0, as_bytes(text)}, now)) << "too many";
  EXPECT_FALSE(history.record_flood({7, 0, as_bytes(text)}, now)) << "seen";
  EXPECT_TRUE(history.record_flood({99999, 0, as_bytes(text)}, now + std::chrono::minutes(2)));
}

TEST(ControlHistory, TellsNewConnectionsWhatIsRecent) {
  ControlHistory ledger;
  TimePoint now = Clock::now();
  std::string text = "x";
  ledger.record_lost(1, "died");
  ledger.record_flood({9, 0, as_bytes(text)}, now);
  EXPECT_EQ(ledger.frames(now).size(), 2u);
  EXPECT_EQ(ledger.frames(now + std::chrono::minutes(2)).size(), 1u);
  for (uint64_t n = 1; n < 1000; ++n) ledger.record_flood({9, n, as_bytes(text)}, now);
  EXPECT_LE(ledger.frames(now).size(), 257u);
}

size_t bytes_of(const std::vector<std::vector<std::byte>>& frames) {
  size_t out = 0;
  for (const auto& frame : frames) out += frame.size();
  return out;
}

TEST(ControlHistory, ForgetsOldFatesThatNobodyNeeds) {
  ControlHistory ledger;
  const auto needed = [](uint64_t id) { return id == 3; };
  for (uint64_t id = 1; id <= 5000; ++id) {
    ledger.record_lost(id, "died");
    ledger.record_left(10'000 + id);
    ledger.forget_old(needed);
  }
  EXPECT_EQ(ledger.frames(Clock::now()).size(), 1024u);
  EXPECT_EQ(ledger.lost(3), "died");
  EXPECT_FALSE(ledger.departed(4));
  EXPECT_TRUE(ledger.departed(5000));
  EXPECT_TRUE(ledger.left(15'000));
  EXPECT_TRUE(ledger.record_lost(4, "died again"));
}

TEST(ControlHistory, TellsNoMoreThanAConnectionTakes) {
  ControlHistory ledger;
  for (uint64_t id = 1; id <= 3000; ++id) ledger.record_lost(id, std::string(4000, 'x'));
  const auto frames = ledger.frames(Clock::now());
  EXPECT_LT(bytes_of(frames), size_t{2} << 20);
  const auto newest = PeerDeparture::decode(ConstBytes(frames.front()).subspan(5));
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->context_id, 3000u);
}

// Returns `per_host` ranks on each of `hosts` hosts. The context id is rank + 1.
std::vector<ControlMember> grid(int hosts, int per_host) {
  std::vector<ControlMember> out;
  for (int rank = 0; rank < hosts * per_host; ++rank)
    out.push_back({rank, static_cast<uint64_t>(rank) + 1, rank / per_host, "", "", 0, ""});
  return out;
}

using Edges = std::set<std::pair<uint64_t, uint64_t>>;

Edges edges(const std::vector<ControlMember>& members, const std::set<uint64_t>& dead) {
  auto departed = [&](uint64_t id) { return dead.contains(id); };
  Edges out;
  for (const ControlMember& m : members) {
    if (departed(m.context_id)) continue;
    LinkTopology roster(m.context_id, m.rank, members);
    for (uint64_t peer : roster.local_peers())
      if (!departed(peer)) out.emplace(m.context_id, peer);
    for (int host : roster.neighbours())
      for (uint64_t peer : roster.links_to(host, departed)) out.emplace(m.context_id, peer);
  }
  return out;
}

bool connected(const Edges& edges, const std::vector<ControlMember>& members,
               const std::set<uint64_t>& dead) {
  std::set<uint64_t> reached, todo;
  for (const ControlMember& m : members)
    if (!dead.contains(m.context_id) && todo.empty()) todo.insert(m.context_id);
  while (!todo.empty()) {
    uint64_t at = *todo.begin();
    todo.erase(todo.begin());
    if (!reached.insert(at).second) continue;
    for (auto [from, to] : edges)
      if (from == at) todo.insert(to);
  }
  return reached.size() == members.size() - dead.size();
}

TEST(LinkTopology, LinksAreMutualAndReachEverybody) {
  for (int hosts = 1; hosts <= 9; ++hosts) {
    for (int per_host = 1; per_host <= 4; ++per_host) {
      auto members = grid(hosts, per_host);
      // The second round assumes that the first representative of each even host is dead.
      std::set<uint64_t> dead;
      for (int round = 0; round < 2; ++round) {
        Edges all = edges(members, dead);
        for (auto [from, to] : all) EXPECT_TRUE(all.contains({to, from})) << from << "-" << to;
        EXPECT_TRUE(connected(all, members, dead)) << hosts << "x" << per_host;
        for (int h = 0; h < hosts && per_host > 1; h += 2)
          dead.insert(static_cast<uint64_t>(h * per_host) + 1);
      }
    }
  }
}

TEST(LinkTopology, TwoLinksPerPairOfHosts) {
  auto members = grid(2, 4);
  LinkTopology first(1, 0, members), second(2, 1, members), third(3, 2, members);
  auto none = [](uint64_t) { return false; };
  EXPECT_EQ(first.links_to(1, none), std::vector<uint64_t>{5});
  EXPECT_EQ(second.links_to(1, none), std::vector<uint64_t>{6});
  EXPECT_TRUE(third.links_to(1, none).empty());
  auto without_first = [](uint64_t id) { return id == 1; };
  EXPECT_EQ(third.links_to(1, without_first), std::vector<uint64_t>{6});
  EXPECT_TRUE(first.dials_first(5));
}

TEST(LinkTopology, RanksOfOneContextCountOnce) {
  auto members = grid(2, 2);
  members[1].context_id = members[0].context_id;
  LinkTopology roster(1, 1, members);
  EXPECT_TRUE(roster.local_peers().empty());
  EXPECT_EQ(roster.processes().size(), 3u);
}

}  // namespace
}  // namespace ringdist
