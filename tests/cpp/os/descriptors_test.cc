#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

#include "os/fd.h"

namespace ringdist {
namespace {

TEST(Descriptors, AreCountedBelowTheLimit) {
#ifdef RINGDIST_SANITIZED
  GTEST_SKIP() << "the sanitizer looks at memory through descriptors of its own";
#endif
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(require_descriptors(1, "the test"));
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<int> taken;
  for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken.push_back(fd);
  const Error none = require_descriptors(1, "the test");
  for (int n = 0; n < 5; ++n) {
    close(taken.back());
    taken.pop_back();
  }
  const Error five = require_descriptors(5, "the test");
  const Error six = require_descriptors(6, "the test");
  const Error six_with_one = require_descriptors(6, "the test", /*had=*/1);
  for (const int fd : taken) close(fd);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(five) << five.what();
  EXPECT_FALSE(six_with_one) << six_with_one.what();
  ASSERT_TRUE(none && six);
  EXPECT_EQ(six.message(),
            "the test needs about 6 file descriptors, of 64 59 are in use: raise 'ulimit -n' to 65 "
            "or more");
  EXPECT_NE(none.message().find("of 64 64 are in use"), std::string::npos) << none.message();
}

}  // namespace
}  // namespace ringdist
