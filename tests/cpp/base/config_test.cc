#include "base/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace ringdist {
namespace {

using Map = std::map<std::string, std::string>;

std::string rejection(const Map& environment, const Map& overrides = {}) {
  auto config = Config::parse(environment, overrides);
  return config.ok() ? "" : config.error().message();
}

TEST(Config, Defaults) {
  auto config = Config::parse({}, {});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().segment_bytes, 258048);
  EXPECT_EQ(config.value().memory, 64 << 20);
  EXPECT_EQ(config.value().peer_timeout, 10);
  EXPECT_EQ(config.value().warn_after, 30);
  EXPECT_EQ(config.value().deterministic, "run");
  EXPECT_EQ(config.value().ucx, "wheel");
  EXPECT_EQ(config.value().log_level, LogLevel::kWarn);
}

TEST(Config, ReadsTheEnvironmentAndOptionsWin) {
  auto config = Config::parse({{"RINGDIST_MEMORY", "1GiB"}, {"RINGDIST_SEGMENT_BYTES", "8192"}},
                              {{"segment_bytes", "64KiB"}, {"deterministic", ""}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().memory, 1 << 30);
  EXPECT_EQ(config.value().segment_bytes, 65536);
  EXPECT_EQ(config.value().deterministic, "");
}

TEST(Config, EmptyNumberMeansUnset) {
  auto config = Config::parse({{"RINGDIST_MEMORY", ""}, {"RINGDIST_UCX", ""}}, {});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().memory, 64 << 20);
}

TEST(Config, RejectsWithTheNameTheValueAndWhatIsAccepted) {
  EXPECT_EQ(rejection({{"RINGDIST_UCX", "vendor"}}),
            "RINGDIST_UCX=\"vendor\" is not valid; accepted: \"wheel\" or \"system\"");
  for (const char* bad : {"64 MiB", "64MB", "-1", "1023KiB", "x", "99999999999GiB"})
    EXPECT_NE(rejection({{"RINGDIST_MEMORY", bad}}), "") << bad;
  for (const char* bad : {"4095", "258049", "1MiB"})
    EXPECT_NE(rejection({{"RINGDIST_SEGMENT_BYTES", bad}}), "") << bad;
  for (const char* bad : {"0.4", "nan", "inf", "-3", "1s"})
    EXPECT_NE(rejection({}, {{"peer_timeout", bad}}), "") << bad;
  EXPECT_EQ(rejection({{"RINGDIST_WARN_AFTER", "0"}}, {{"peer_timeout", "1e300"}}), "");
  EXPECT_NE(rejection({{"RINGDIST_WARN_AFTER", "-1"}}), "");
  EXPECT_NE(rejection({{"RINGDIST_LOG_LEVEL", "loud"}}).find("debug"), std::string::npos);
}

TEST(Config, UnknownOptionListsTheFields) {
  std::string text = rejection({}, {{"segment", "1"}});
  EXPECT_NE(text.find("segment_bytes"), std::string::npos) << text;
}

TEST(Config, ListsItself) {
  auto config = Config::parse({{"RINGDIST_MEMORY", "2MiB"}, {"RINGDIST_MEMROY", "1"}},
                              {{"peer_timeout", "2.5"}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().unknown_variables(), std::vector<std::string>{"RINGDIST_MEMROY"});
  auto variables = config.value().variables();
  auto find = [&](const std::string& name) {
    return *std::find_if(variables.begin(), variables.end(),
                         [&](const Config::Variable& v) { return v.name == name; });
  };
  EXPECT_EQ(find("RINGDIST_MEMORY").value, "2MiB");
  EXPECT_EQ(find("RINGDIST_MEMORY").default_value, "64MiB");
  EXPECT_EQ(find("RINGDIST_MEMORY").source, "environment");
  EXPECT_EQ(find("RINGDIST_MEMORY").type, "int");
  EXPECT_EQ(find("RINGDIST_PEER_TIMEOUT").value, "2.5");
  EXPECT_EQ(find("RINGDIST_PEER_TIMEOUT").source, "option");
  EXPECT_FALSE(find("RINGDIST_UCX").set);
}

TEST(Config, APortIsOneOrARange) {
  const auto ports = [](const std::string& text) {
    const auto range = Config::parse({}, {{"port", text}}).value().ports();
    return std::pair<int, int>(range.first, range.last);
  };
  EXPECT_EQ(ports(""), std::pair(0, 0));
  EXPECT_EQ(ports("47000"), std::pair(47000, 47000));
  EXPECT_EQ(ports("47000-65535"), std::pair(47000, 65535));
  for (const char* bad : {"0", "-1", "47000-", "47001-47000", "65536", "80 ", "http"})
    EXPECT_NE(rejection({{"RINGDIST_PORT", bad}}, {}).find("RINGDIST_PORT"), std::string::npos)
        << bad;
}

TEST(Config, HashCoversWhatRanksMustShare) {
  Config a, b;
  b.memory = 1 << 20;
  b.socket_ifname = "eth0";
  EXPECT_EQ(a.options_hash(), b.options_hash());
  b.algorithm = "ring";
  EXPECT_NE(a.options_hash(), b.options_hash());
  EXPECT_NE(a.options_text(), b.options_text());
  b.algorithm = "";
  EXPECT_EQ(a.options_hash(), b.options_hash());
  b.codec = "int8";
  EXPECT_NE(a.options_hash(), b.options_hash());
}

TEST(Config, FromEnvironment) {
  setenv("RINGDIST_PEER_TIMEOUT", "3", 1);
  auto config = Config::from_environment({});
  unsetenv("RINGDIST_PEER_TIMEOUT");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().peer_timeout, 3);
}

}  // namespace
}  // namespace ringdist
