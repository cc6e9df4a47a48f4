// SlowLinkDetector, with figures of links as they were measured in a ring of three hosts.
#include "engine/context/slow_link_detector.h"

#include <gtest/gtest.h>

#include <functional>

namespace ringdist {
namespace {

// A link, its speed in megabits per second, and its part of the data that other links carry. The
// process that sends is on host `from`.
struct LinkSpeed {
  int from;
  int to;
  double speed;
  double part = 1;
};

class SlowLinkDetectorTest : public testing::Test {
 protected:
  // Runs a second of a job in which each link carries so many megabits. Returns the lines for the
  // log.
  std::vector<std::string> step(const std::vector<LinkSpeed>& links, double megabits) {
    for (const LinkSpeed& link : links) {
      CallSample sample;
      sample.host = "h" + std::to_string(link.from);
      const double carried = megabits * link.part;
      sample.links.push_back({address(link.from), address(link.to),
                              static_cast<uint64_t>(carried * 1e6 / 8),
                              static_cast<uint64_t>(carried / link.speed * 1e6), 2, 300});
      detector_.learn(static_cast<uint64_t>(link.from), sample);
    }
    now_ += std::chrono::seconds(1);
    return detector_.evaluate(now_);
  }
  std::vector<std::string> run(int seconds, const std::vector<LinkSpeed>& links,
                               double megabits = 200) {
    std::vector<std::string> out;
    for (int i = 0; i < seconds; ++i)
      for (std::string& line : step(links, megabits)) out.push_back(std::move(line));
    return out;
  }
  static std::string address(int host) { return "10.0.0." + std::to_string(host); }

  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  SlowLinkDetector detector_;
};

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(SlowLinkDetectorTest, NamesTheHostThatAllSlowLinksHave) {
  auto lines = run(20, {{1, 2, 284}, {2, 3, 283}, {3, 1, 2577}});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(holds(lines[0],
                    "over the links of host h2 (10.0.0.2) at 283 Mbit/s, and on the "
                    "other links at 2.58e+03 Mbit/s"))
      << lines[0];
  EXPECT_TRUE(holds(detector_.json(), R"("host":"h2","address":"10.0.0.2","to_host":"",)"));
  EXPECT_TRUE(holds(detector_.json(), R"("resent":20,"rtt":0.000300)")) << detector_.json();
  lines = run(20, {{1, 2, 950}, {2, 3, 960}, {3, 1, 955}});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], "host h2 (10.0.0.2) is no longer slower than other links");
  EXPECT_EQ(detector_.json(), "[]");
}

TEST_F(SlowLinkDetectorTest, NamesOneLink) {
  const auto lines = run(20, {{1, 2, 517}, {2, 3, 287}, {3, 1, 1306}});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(holds(lines[0], "from host h2 (10.0.0.2) to host h3 (10.0.0.3) at 287 Mbit/s"))
      << lines[0];
}

TEST_F(SlowLinkDetectorTest, NamesOneLinkThatIsSlowBothWays) {
  std::vector<std::string> lines;
  for (int i = 0; i < 4; ++i)
    for (std::string& line :
         run(5, {{1, 2, i % 2 == 0 ? 300.0 : 280}, {2, 1, 290}, {3, 1, 950}, {2, 3, 950}}))
      lines.push_back(std::move(line));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(holds(lines[0], "from host h1 (10.0.0.1) to host h2")) << lines[0];
}

TEST_F(SlowLinkDetectorTest, NamesNobodyWhereItIsNotClear) {
  EXPECT_TRUE(run(60, {{1, 2, 955}, {2, 3, 961}, {3, 1, 958}}).empty()) << "equal";
  EXPECT_TRUE(run(60, {{1, 2, 300}, {2, 1, 310}}).empty()) << "there is no other link";
  EXPECT_TRUE(run(60, {{1, 2, 300}, {3, 4, 290}, {2, 3, 950}, {4, 1, 950}}).empty()) << "two links";
  EXPECT_TRUE(run(60, {{1, 2, 284}, {2, 3, 283}, {3, 1, 2577}}, 10).empty()) << "hardly used";
  EXPECT_TRUE(run(60, {{1, 2, 50, 0.2}, {2, 3, 950}, {3, 1, 950}}).empty()) << "small messages";
  for (int i = 0; i < 12; ++i)  // each in turn
    EXPECT_TRUE(
        run(5, {{1, 2, i % 2 ? 284.0 : 950}, {2, 3, i % 2 ? 950.0 : 284}, {3, 1, 950}}).empty());
}

TEST_F(SlowLinkDetectorTest, NamesALinkThatIsAHundredTimesSlower) {
  const auto lines = run(20, {{1, 2, 100}, {2, 3, 10'000}, {3, 1, 10'000}}, 80);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(holds(lines[0], "from host h1 (10.0.0.1) to host h2 (10.0.0.2) at 100 Mbit/s"))
      << lines[0];
}

// Training reads from a file server, and writes checkpoints to it.
TEST_F(SlowLinkDetectorTest, LinksToOthersThanHostsOfTheJobAreNotCompared) {
  EXPECT_TRUE(run(60, {{1, 2, 955}, {2, 1, 961}, {1, 9, 100}, {2, 9, 100}}).empty());
}

TEST_F(SlowLinkDetectorTest, TakesAnySample) {
  for (int i = 0; i < 20; ++i) {
    CallSample sample{"h", "", now_, {}, {}, {}};
    for (int at = 0; at < 64; ++at)
      sample.links.push_back({std::to_string(at), std::to_string(i), ~uint64_t{0}, 0, 1, 2});
    detector_.learn(7, sample);
    sample.links = {{"", "", 1 << 30, ~uint64_t{0}, 0, 0}, {"a", "a", 1 << 30, 1, 0, 0}};
    detector_.learn(8, sample);
    (void)run(1, {{1, 2, 955}, {2, 1, 961}});
  }
  EXPECT_EQ(run(20, {{1, 2, 284}, {2, 3, 283}, {3, 1, 2577}}).size(), 1u);
}

// A link's processes send at the same time, so its speed is that of all together.
TEST_F(SlowLinkDetectorTest, ProcessesOfAHostShareItsLink) {
  std::vector<std::string> lines;
  for (int i = 0; i < 20; ++i) {
    for (uint64_t process = 10; process < 20; ++process) {
      CallSample sample;
      sample.host = "h1";
      sample.links.push_back({address(1), address(2), 12'000'000, 900'000, 0, 300});
      detector_.learn(process, sample);
    }
    for (std::string& line : step({{2, 3, 955}, {3, 1, 955}}, 900)) lines.push_back(line);
  }
  EXPECT_TRUE(lines.empty()) << lines[0];
}

}  // namespace
}  // namespace ringdist
