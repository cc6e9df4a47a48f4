#include "os/fork_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/epoll.h"

namespace ringdist {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

int exit_status(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForkGuard, ChildClosesOurDescriptorsAndKnowsIt) {
  auto event = EventFd::create();
  ASSERT_TRUE(event.ok());
  int foreign = dup(STDERR_FILENO);
  EXPECT_GE(fork_guard::count(fork_guard::Hold()), 1u);
  ForkMark mark;
  uint64_t generation = process_generation();
  pid_t child = fork();
  if (child == 0) {
    int problems = 0;
    problems |= is_open(event.value().get()) ? 1 : 0;
    problems |= is_open(foreign) ? 0 : 2;
    problems |= mark.forked() ? 0 : 4;
    problems |= process_generation() != generation ? 0 : 8;
    _exit(problems);
  }
  EXPECT_EQ(exit_status(child), 0);
  EXPECT_TRUE(is_open(event.value().get()));
  EXPECT_FALSE(mark.forked());
  close(foreign);
}

// In the child, the number of a closed descriptor may belong to another file.
TEST(ForkGuard, AnFdDestroyedInTheChildClosesNothing) {
  Fd fd = Fd::open([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); });
  int number = fd.get();
  pid_t child = fork();
  if (child == 0) {
    int again = open("/dev/null", O_RDONLY);
    fd.reset();
    _exit(again == number && is_open(again) ? 0 : 1);
  }
  EXPECT_EQ(exit_status(child), 0);
}

TEST(ForkGuard, ClosedDescriptorsAreForgotten) {
  int number = -1;
  {
    Fd fd = Fd::open([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); });
    number = fd.get();
    Fd moved = std::move(fd);
    EXPECT_FALSE(fd);
    EXPECT_EQ(moved.get(), number);
  }
  EXPECT_FALSE(is_open(number));
  int reused = open("/dev/null", O_RDONLY);
  ASSERT_EQ(reused, number);
  pid_t child = fork();
  if (child == 0) _exit(is_open(reused) ? 0 : 1);
  EXPECT_EQ(exit_status(child), 0);
  close(reused);
}

}  // namespace
}  // namespace ringdist
