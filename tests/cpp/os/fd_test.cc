#include "os/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "os/socket.h"
#include "support/replaced_new.h"

namespace ringdist::test {
namespace {

size_t open_descriptors() {
  size_t out = 0;
  for (int fd = 0; fd < 1024; ++fd) out += fcntl(fd, F_GETFD) >= 0;
  return out;
}

// The number is high enough that the fork guard's list must grow, whatever its size after earlier
// tests.
constexpr size_t kMost = 900;  // a process may usually have 1024
constexpr size_t kPassed = 200;

// Regression test: the allocation failed under the list's lock, which closing the descriptor takes
// again.
TEST(Fd, WithoutMemoryForTheListNothingIsOpened) {
  std::vector<Fd> held;
  held.reserve(kMost);
  const size_t before = open_descriptors();
  size_t failures = 0;
  while (failures == 0 && held.size() < kMost) {
    Failures left{1};
    try {
      const FailingAllocations failing(left);
      held.push_back(Fd::open([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); }));
    } catch (const std::bad_alloc&) {
      ++failures;
      EXPECT_EQ(open_descriptors(), before + held.size());
      held.push_back(Fd::open([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); }));
    }
    ASSERT_TRUE(held.back());
  }
  EXPECT_GT(failures, 0u);
  held.clear();
  EXPECT_EQ(open_descriptors(), before);
}

// Whichever allocation fails, passed descriptors are either received or still queued.
TEST(Fd, WithoutMemoryPassedOnesAreNotLost) {
  std::array<int, 2> ends{-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Fd left = Fd::open([&] { return ends[0]; });
  const Fd right = Fd::open([&] { return ends[1]; });
  std::array<int, kMaxPassedFds> passed{};
  passed.fill(STDERR_FILENO);
  std::vector<ReceivedFds> kept;
  kept.reserve(kPassed);
  size_t failures = 0;
  while (kept.size() < kPassed / kMaxPassedFds) {
    ASSERT_FALSE(send_with_fds(left, std::array{std::byte{1}}, passed));
    for (size_t n = 1;; ++n) {
      std::array<std::byte, 16> room{};
      bool empty = true;
      Failures left_of_them{n};
      try {
        const FailingAllocations failing(left_of_them);
        auto got = receive_with_fds(right, room, empty);
        if (got.ok()) kept.push_back(std::move(got.value()));
        break;
      } catch (const std::bad_alloc&) {
        ++failures;
      }
    }
    ASSERT_EQ(kept.back().fds.size(), kMaxPassedFds);
  }
  EXPECT_GE(failures, kept.size()) << "and the list's, where it had to grow";
}

}  // namespace
}  // namespace ringdist::test
