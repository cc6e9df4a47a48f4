#include "os/doorbell.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/epoll.h"

namespace ringdist {
namespace {

bool readable(const Doorbell& doorbell, int milliseconds) {
  pollfd entry{doorbell.get(), POLLIN, 0};
  return poll(&entry, 1, milliseconds) == 1;
}

RemoteDoorbell ringer_of(const Doorbell& doorbell) {
  return RemoteDoorbell(Fd::open([&] { return dup(doorbell.write_end().get()); }));
}

TEST(Doorbell, RingsUntilItIsHeard) {
  auto made = Doorbell::create();
  ASSERT_TRUE(made.ok()) << made.error().what();
  const Doorbell& doorbell = made.value();
  EXPECT_FALSE(readable(doorbell, 0));
  const RemoteDoorbell ringer = ringer_of(doorbell);
  for (int n = 0; n < 100'000; ++n)
    ringer.ring();  // far more than the pipe holds; ring() never blocks
  EXPECT_TRUE(readable(doorbell, 0));
  doorbell.drain();
  EXPECT_FALSE(readable(doorbell, 0));
  ringer.ring();
  EXPECT_TRUE(readable(doorbell, 5000));
  doorbell.drain();
  doorbell.ring();
  EXPECT_TRUE(readable(doorbell, 5000));
}

TEST(Doorbell, SaysThatItsOwnerHasClosedIt) {
  Doorbell doorbell = std::move(Doorbell::create().value());
  const RemoteDoorbell ringer = ringer_of(doorbell);
  auto epoll = Epoll::create();
  ASSERT_FALSE(epoll.value().add(ringer.get(), 0, 5));
  ringer.ring();
  EXPECT_TRUE(epoll.value().wait(Duration(0)).empty());
  doorbell.close();
  const auto events = epoll.value().wait(std::chrono::seconds(5));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].key, 5u);
  EXPECT_TRUE(events[0].events & EPOLLERR);
}

TEST(Doorbell, SaysThatItsOwnerWasKilled) {
  // Like pipes between processes, where only the owner has the read end.
  int to_parent[2];
  ASSERT_EQ(pipe(to_parent), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(to_parent[1]);
    pause();
    _exit(0);
  }
  close(to_parent[0]);
  const RemoteDoorbell ringer(Fd::open([&] { return to_parent[1]; }));
  auto epoll = Epoll::create();
  ASSERT_FALSE(epoll.value().add(ringer.get(), 0, 5));
  EXPECT_TRUE(epoll.value().wait(Duration(0)).empty());
  kill(child, SIGKILL);
  EXPECT_EQ(epoll.value().wait(std::chrono::seconds(5)).size(), 1u);
  ringer.ring();
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
}

TEST(Doorbell, WhoIsGoneCostsNobodyASignal) {
  // The default action of SIGPIPE would end the process.
  EXPECT_EXIT(
      {
        signal(SIGPIPE, SIG_DFL);
        Doorbell doorbell = std::move(Doorbell::create().value());
        const RemoteDoorbell ringer = ringer_of(doorbell);
        doorbell.close();
        ringer.ring();
        ringer.ring();
        _exit(7);
      },
      testing::ExitedWithCode(7), "");
}

TEST(Doorbell, LeavesASignalThatWasPendingBefore) {
  sigset_t only;
  sigset_t before;
  sigemptyset(&only);
  sigaddset(&only, SIGPIPE);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &only, &before), 0);
  const auto pending = [] {
    sigset_t now;
    sigpending(&now);
    return sigismember(&now, SIGPIPE) == 1;
  };
  Doorbell doorbell = std::move(Doorbell::create().value());
  const RemoteDoorbell ringer = ringer_of(doorbell);
  doorbell.close();
  ringer.ring();
  EXPECT_FALSE(pending());
  raise(SIGPIPE);
  ringer.ring();
  EXPECT_TRUE(pending());
  const timespec at_once{};
  EXPECT_EQ(sigtimedwait(&only, nullptr, &at_once), SIGPIPE);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace ringdist
