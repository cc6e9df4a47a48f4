#include "os/cpu_set.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

namespace ringdist {
namespace {

CpuSet parsed(std::string_view text) {
  const auto out = CpuSet::parse(text);
  EXPECT_TRUE(out.has_value()) << text;
  return out.value_or(CpuSet());
}

TEST(CpuSet, IsReadFromAListOfTheKernels) {
  EXPECT_EQ(parsed("0-3,8"), parsed("8,3,2,1,0"));
  EXPECT_EQ(parsed("1023"), parsed("1023-1023"));
  EXPECT_TRUE(parsed("").empty());
  EXPECT_EQ(parsed("0-7") & parsed("6-9,20"), parsed("6,7"));
  EXPECT_TRUE((parsed("0-7") & parsed("8")).empty());
}

TEST(CpuSet, IsNotReadFromWhatIsNone) {
  for (const char* const text :
       {"x", "-1", "1-", "3-1", "1,", ",1", "1 2", "1,,2", "0-1024", "99999999999", "1-2-3"})
    EXPECT_FALSE(CpuSet::parse(text).has_value()) << text;
}

// A fake /sys with one device near CPUs 4 to 7, and one without a location.
class SysTest : public testing::Test {
 protected:
  void SetUp() override {
    sys_ = testing::TempDir() + "ringdist-sys-" + std::to_string(getpid());
    list_of("0000:3b:00.0", "4-7\n");
    list_of("0000:86:00.0", "\n");
  }
  void TearDown() override { std::filesystem::remove_all(sys_); }
  void list_of(const std::string& address, const std::string& text) const {
    const std::string folder = sys_ + "/bus/pci/devices/" + address;
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/local_cpulist") << text;
  }

  std::string sys_;
};

TEST_F(SysTest, HasTheCpusNearADevice) {
  EXPECT_EQ(CpuSet::near("0000:3b:00.0", sys_), parsed("4-7"));
}

TEST_F(SysTest, MayNotSay) {
  EXPECT_TRUE(CpuSet::near("0000:86:00.0", sys_).empty());
  EXPECT_TRUE(CpuSet::near("0000:ff:00.0", sys_).empty());
  EXPECT_TRUE(CpuSet::near("", sys_).empty());
}

CpuSet here() { return CpuSet::of(pthread_self()); }

// Returns one CPU that the thread may run on.
CpuSet one_here() { return parsed(std::to_string(sched_getcpu())); }

TEST(ScopedAffinity, NarrowsAThreadAndLetsItGo) {
  std::thread([] {
    const CpuSet before = here();
    const CpuSet one = one_here();
    {
      const ScopedAffinity near(one);
      EXPECT_EQ(here(), one);
    }
    EXPECT_EQ(here(), before);
  }).join();
}

// An affinity set from outside has priority.
TEST(ScopedAffinity, StaysWhereTheThreadMayBe) {
  std::thread([] {
    const CpuSet one = one_here();
    ASSERT_TRUE(one.bind(pthread_self()));
    for (const CpuSet& cpus : {CpuSet(), parsed("0-1023")}) {
      const ScopedAffinity near(cpus);
      EXPECT_EQ(here(), one);
      EXPECT_FALSE(cpus.narrow(pthread_self()));
    }
    EXPECT_EQ(here(), one);
  }).join();
}

}  // namespace
}  // namespace ringdist
