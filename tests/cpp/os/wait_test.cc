// Objects that threads wait on: eventfd, epoll, pidfd, signals.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "os/epoll.h"
#include "os/event_loop.h"
#include "os/pidfd.h"
#include "os/random.h"
#include "os/signal.h"

namespace ringdist {
namespace {

TEST(EventFd, SignalsCollapse) {
  auto event = EventFd::create();
  ASSERT_TRUE(event.ok());
  EXPECT_FALSE(event.value().drain());
  event.value().signal();
  event.value().signal();
  EXPECT_TRUE(event.value().drain());
  EXPECT_FALSE(event.value().drain());
}

TEST(Epoll, TellsWhichOne) {
  auto epoll = Epoll::create();
  auto a = EventFd::create(), b = EventFd::create();
  ASSERT_TRUE(epoll.ok() && a.ok() && b.ok());
  ASSERT_FALSE(epoll.value().add(a.value().get(), EPOLLIN, 1));
  ASSERT_FALSE(epoll.value().add(b.value().get(), EPOLLIN, 2));
  EXPECT_TRUE(epoll.value().wait(Milliseconds(1)).empty());
  b.value().signal();
  auto events = epoll.value().wait(Milliseconds(1000));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].key, 2u);
  epoll.value().remove(b.value().get());
  EXPECT_TRUE(epoll.value().wait(Milliseconds(1)).empty());
  EXPECT_TRUE(epoll.value().add(-1, EPOLLIN, 3));
}

TEST(Pidfd, SeesTheEndOfAProcess) {
  pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  auto pidfd = open_pidfd(child);
  ASSERT_TRUE(pidfd.ok()) << pidfd.error().what();
  EXPECT_FALSE(has_exited(pidfd.value()));
  kill(child, SIGKILL);
  auto epoll = Epoll::create();
  ASSERT_FALSE(epoll.value().add(pidfd.value().get(), EPOLLIN, 7));
  EXPECT_EQ(epoll.value().wait(Milliseconds(2000)).size(), 1u);
  EXPECT_TRUE(has_exited(pidfd.value()));
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(open_pidfd(child).ok());
  EXPECT_FALSE(open_pidfd(0).ok());
}

TEST(Random, IdsDiffer) {
  std::set<uint64_t> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(random_id());
  EXPECT_EQ(ids.size(), 1000u);
}

TEST(SignalWatch, ReachesEveryWatcherAndRestoresTheDefault) {
  auto a = EventFd::create(), b = EventFd::create();
  {
    auto first = SignalWatch::on_sigusr1(a.value());
    auto second = SignalWatch::on_sigusr1(b.value());
    raise(SIGUSR1);
    EXPECT_TRUE(a.value().drain());
    EXPECT_TRUE(b.value().drain());
  }
  struct sigaction now{};
  sigaction(SIGUSR1, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST(SignalWatch, LeavesForeignHandlersAlone) {
  auto event = EventFd::create();
  signal(SIGUSR1, SIG_IGN);
  {
    auto watch = SignalWatch::on_sigusr1(event.value());
    raise(SIGUSR1);
    EXPECT_FALSE(event.value().drain());
  }
  struct sigaction now{};
  sigaction(SIGUSR1, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_IGN);
  signal(SIGUSR1, SIG_DFL);
}

TEST(SignalWatch, AForkedChildGetsTheDefaultAction) {
  auto event = EventFd::create();
  auto watch = SignalWatch::on_sigusr1(event.value());
  pid_t child = fork();
  if (child == 0) {
    raise(SIGUSR1);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
  EXPECT_FALSE(event.value().drain());
}

// A handler, such as that of Python's faulthandler, reports the thread that has crashed.
TEST(ThreadWithoutSignals, GetsSignalsOfItsOwnFaults) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int number : {SIGSEGV, SIGUSR1}) ::signal(number, [](int got) { _exit(got); });
    thread_without_signals("crashes", [] {
      pthread_kill(pthread_self(), SIGUSR1);  // blocked
      pthread_kill(pthread_self(), SIGSEGV);
    }).join();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == SIGSEGV) << status;
}

}  // namespace
}  // namespace ringdist
