#include "os/memfd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace ringdist {
namespace {

constexpr size_t kBytes = size_t{1} << 20;

Fd made(const char* name = "ringdist-test") {
  auto file = create_memory(name, kBytes);
  EXPECT_TRUE(file.ok()) << file.error().what();
  return std::move(file.value());
}

TEST(SharedMemory, WhatOneWritesTheOtherReads) {
  const Fd file = made();
  auto mine = map_memory(file, kBytes, /*writable=*/true);
  auto theirs = map_memory(file, 4096, /*writable=*/false);
  ASSERT_TRUE(mine.ok() && theirs.ok());
  EXPECT_EQ(theirs.value().size(), 4096u);
  ASSERT_NE(mine.value().data(), theirs.value().data());
  mine.value().data()[4095] = std::byte{7};
  EXPECT_EQ(theirs.value().data()[4095], std::byte{7});
}

TEST(SharedMemory, AMappingGrowsFromWhereItBegins) {
  const Fd file = made();
  auto mine = map_memory(file, kBytes, /*writable=*/true);
  auto theirs = map_memory(file, 4096, /*writable=*/false, 8192, kBytes - 8192);
  ASSERT_TRUE(mine.ok() && theirs.ok());
  mine.value().data()[8192] = std::byte{7};
  mine.value().data()[kBytes - 1] = std::byte{8};
  ASSERT_FALSE(theirs.value().grow(kBytes - 8192));
  EXPECT_EQ(theirs.value().size(), kBytes - 8192);
  EXPECT_EQ(theirs.value().data()[0], std::byte{7});
  EXPECT_EQ(theirs.value().data()[kBytes - 8192 - 1], std::byte{8});
}

TEST(SharedMemory, ItsSizeCannotChange) {
  const Fd file = made();
  EXPECT_NE(ftruncate(file.get(), 4096), 0);
  EXPECT_NE(ftruncate(file.get(), 2 * kBytes), 0);
  EXPECT_FALSE(map_memory(file, 2 * kBytes, /*writable=*/false).ok());
  EXPECT_FALSE(map_memory(file, 4096, /*writable=*/false, 0, 2 * kBytes).ok());
  EXPECT_FALSE(map_memory(file, 4096, /*writable=*/false, kBytes).ok());
}

TEST(SharedMemory, AFileThatMayShrinkIsRefused) {
  const Fd file = Fd::open([] { return memfd_create("ringdist-test", MFD_CLOEXEC); });
  ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
  auto mapping = map_memory(file, kBytes, /*writable=*/false);
  ASSERT_FALSE(mapping.ok());
  EXPECT_EQ(mapping.error().kind(), ErrorKind::kProtocol);
}

TEST(SharedMemory, OthersCanBeKeptFromWriting) {
  const Fd file = made();
  auto mine = map_memory(file, kBytes, /*writable=*/true);
  seal_against_writing(file);
  EXPECT_FALSE(map_memory(file, kBytes, /*writable=*/true).ok());
  ASSERT_FALSE(allocate(file, 0, kBytes));  // the owner can still allocate
  mine.value().data()[kBytes - 1] = std::byte{1};
}

// Older kernels undo an allocation that a signal interrupts.
TEST(SharedMemory, ALongAllocationEndsBesideATimer) {
  constexpr size_t kOffset = 4096;
  constexpr size_t kLong = (size_t{200} << 20) + kOffset;
  const auto file = create_memory("ringdist-test", kOffset + kLong);
  ASSERT_TRUE(file.ok());
  const auto before = signal(SIGALRM, [](int) {});
  const itimerval often{.it_interval = {0, 5000}, .it_value = {0, 5000}};
  setitimer(ITIMER_REAL, &often, nullptr);
  EXPECT_FALSE(allocate(file.value(), kOffset, kLong));
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  signal(SIGALRM, before);
  struct stat now{};
  ASSERT_EQ(fstat(file.value().get(), &now), 0);
  EXPECT_GE(static_cast<size_t>(now.st_blocks) * 512, kLong);  // more with huge pages
}

// The address is mapped in the parent only, so an access kills the child.
TEST(SharedMemory, AForkedChildHasNone) {
  const Fd file = made();
  auto mapping = map_memory(file, kBytes, /*writable=*/true);
  mapping.value().data()[0] = std::byte{1};
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    const volatile std::byte* data = mapping.value().data();
    const bool there = msync(mapping.value().data(), 4096, MS_ASYNC) == 0;
    _exit(there && data[0] == std::byte{1} ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(mapping.value().data()[0], std::byte{1});
}

}  // namespace
}  // namespace ringdist
