#include "os/host.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace ringdist {
namespace {

TEST(HostKey, IsTheSameEachTime) {
  const auto key = host_key();
  ASSERT_TRUE(key.ok()) << key.error().what();
  EXPECT_GT(key.value().find('/'), 0u) << "no boot, in " << key.value();
  EXPECT_EQ(host_key().value(), key.value());
}

// A fallback to another key would split one host into two.
TEST(HostKey, SaysWhatIsMissing) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest = dup(0);
  close(lowest);
  const rlimit none{static_cast<rlim_t>(lowest), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto key = host_key();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(key.ok()) << key.value();
  EXPECT_NE(key.error().message().find("raise 'ulimit -n'"), std::string::npos)
      << key.error().what();
}

}  // namespace
}  // namespace ringdist
