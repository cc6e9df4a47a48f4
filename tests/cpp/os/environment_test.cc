#include "os/environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <atomic>
#include <deque>
#include <string>
#include <thread>

namespace ringdist {
namespace {

TEST(SetDefaults, KeepsWhatIsSet) {
  ASSERT_EQ(setenv("RINGDIST_TEST_GIVEN", "theirs", 1), 0);
  constexpr std::array<const char*, 3> kOurs = {
      "RINGDIST_TEST_GIVEN=ours", "RINGDIST_TEST_MISSING=ours=", "RINGDIST_TEST_NONE="};
  set_defaults(kOurs);
  EXPECT_STREQ(getenv("RINGDIST_TEST_GIVEN"), "theirs");
  EXPECT_STREQ(getenv("RINGDIST_TEST_MISSING"), "ours=");
  EXPECT_STREQ(getenv("RINGDIST_TEST_NONE"), "");
  EXPECT_NE(getenv("PATH"), nullptr);
}

TEST(SetDefaults, LeavesItToSetenvAfterwards) {
  constexpr std::array<const char*, 1> kOurs = {"RINGDIST_TEST_LATER=ours"};
  set_defaults(kOurs);
  ASSERT_EQ(setenv("RINGDIST_TEST_LATER", "theirs", 1), 0);
  ASSERT_EQ(setenv("RINGDIST_TEST_ANOTHER", "theirs", 1), 0);
  set_defaults(kOurs);
  EXPECT_STREQ(getenv("RINGDIST_TEST_LATER"), "theirs");
  EXPECT_STREQ(getenv("RINGDIST_TEST_ANOTHER"), "theirs");
  ASSERT_EQ(unsetenv("RINGDIST_TEST_LATER"), 0);
  EXPECT_EQ(getenv("RINGDIST_TEST_LATER"), nullptr);
}

// With setenv() the reader crashes.
TEST(SetDefaults, OthersMayReadMeanwhile) {
  constexpr int kTimes = 300;
  static std::deque<std::string> settings;
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    while (!over) {
      if (getenv("RINGDIST_TEST_NEVER") != nullptr || getenv("PATH") == nullptr) ++wrong;
    }
  });
  for (int i = 0; i < kTimes; ++i) {
    settings.push_back("RINGDIST_TEST_" + std::to_string(i) + "=");
    const std::array<const char*, 1> one = {settings.back().c_str()};
    set_defaults(one);
  }
  over = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
  for (int i = 0; i < kTimes; ++i)
    EXPECT_NE(getenv(("RINGDIST_TEST_" + std::to_string(i)).c_str()), nullptr) << i;
}

}  // namespace
}  // namespace ringdist
