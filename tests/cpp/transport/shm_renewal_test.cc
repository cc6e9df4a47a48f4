// Links of transport `shm` that cannot be created at once, and links that replace others.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <optional>

#include "os/socket.h"
#include "transport/shm/segment_layout.h"
#include "transport/shm_exporting.h"
#include "transport/shm_fixture.h"

namespace ringdist::test {
namespace {

auto open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST(ShmRenewal, ALinkThatCouldNotBeMadeIsReplacedForTheNextGroup) {
  End a;
  End b;
  a.knows(b);
  b.knows(a);
  {
    const NoDescriptors lack;
    a.send(b, {});
    EXPECT_EQ(a.failed, 1);
    ASSERT_TRUE(together({&a}, [&] { return a.lost.size() == 1; }));
  }
  EXPECT_FALSE(a.transport->reaches(b.id));
  a.send(b, {});
  EXPECT_EQ(a.failed, 2) << "the groups that there are have lost messages";
  a.knows(b);
  EXPECT_TRUE(a.transport->reaches(b.id));
  const auto payload = numbered(5000, 3);
  a.send(b, payload);
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == 1; }));
  EXPECT_EQ(b.got[0], payload);
  EXPECT_EQ(a.failed, 2);
  EXPECT_EQ(a.lost.size(), 1u);
}

// More links than there are rings and counters. Messages of an earlier link are read before those
// of the next.
TEST(ShmRenewal, LinksFollowEachOtherInOrder) {
  End a;
  End b;
  a.knows(b);
  b.knows(a);
  std::deque<std::vector<std::byte>> sent;
  for (int i = 0; i < static_cast<int>(shm::kMaxChannels) + 50; ++i) {
    for (const size_t size : {size_t{8}, size_t{100'000}}) {
      sent.push_back(numbered(size, i));
      a.send(b, sent.back());
    }
    ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() + 1 >= sent.size(); })) << i;
    b.transport->drop_peer(a.id);  // like a peer that does not want to read on
    ASSERT_TRUE(together({&a, &b}, [&] { return !a.transport->reaches(b.id); })) << i;
    a.knows(b);
  }
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == sent.size(); }));
  EXPECT_TRUE(std::ranges::equal(b.got, sent));
}

TEST(ShmRenewal, NothingFollowsTheLinkToAProcessThatIsGone) {
  End a;
  auto b = std::make_unique<End>();
  connect(a, *b);
  const auto address = b->transport->address();
  const ContextId id = b->id;
  b.reset();
  ASSERT_TRUE(together({&a}, [&] { return !a.lost.empty(); }));
  ASSERT_FALSE(a.transport->add_peer(id, address));
  EXPECT_FALSE(a.transport->reaches(id));
}

TEST(ShmRenewal, AFewPeersAreGreetedAtATime) {
  End a;
  std::vector<std::unique_ptr<End>> peers(12);
  for (auto& peer : peers) {
    peer = std::make_unique<End>();
    a.knows(*peer);
    peer->knows(a);
  }
  const auto before = open_files();
  for (auto& peer : peers) a.send(*peer, {});
  EXPECT_EQ(open_files() - before, 4);
  // The peers that were greeted first do not answer. They delay no other for long.
  End& last = *peers.back();
  ASSERT_TRUE(together({&a, &last}, [&] { return last.got.size() == 1; }));
  for (auto& peer : peers)
    ASSERT_TRUE(together({&a, peer.get()}, [&] { return peer->got.size() == 1; }));
  EXPECT_TRUE(a.lost.empty());
}

constexpr rlim_t kMostInFlight = 64;

// Keeps twice as many descriptors in flight as the limit of this user.
class Flood {
 public:
  Flood() {
    set_limit(2 * kMostInFlight);
    std::array<int, 2> ends{-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) != 0) return;
    left_ = Fd::open([&] { return ends[0]; });
    right_ = Fd::open([&] { return ends[1]; });
    std::array<int, kMaxPassedFds> fds;
    fds.fill(ends[0]);
    bool later = false;
    while (!send_with_fds(left_, std::array{std::byte{1}}, fds, &later)) {
    }
    full_ = later;
    set_limit(kMostInFlight);
  }
  bool full() const { return full_; }

 private:
  static void set_limit(rlim_t most) {
    const rlimit limit{most, 2 * kMostInFlight};
    setrlimit(RLIMIT_NOFILE, &limit);
  }

  Fd left_;
  Fd right_;
  bool full_ = false;
};

// The kernel rejects the greeting and then its answer.
int greet_while_no_descriptor_may_be_in_flight() {
  if (setgid(65534) != 0 || setuid(65534) != 0) return 1;
  End a;
  End b;
  a.knows(b);
  b.knows(a);
  std::optional<Flood> flood(std::in_place);
  if (!flood->full()) return 3;
  a.send(b, {});
  for (int i = 0; i < 100; ++i) a.transport->progress();
  if (a.failed > 0 || b.transport->progress()) return 4;
  flood.reset();
  const auto before = open_files();
  if (!together({&a}, [&] { return open_files() > before; })) return 5;
  flood.emplace();
  if (!flood->full()) return 6;
  for (int i = 0; i < 100; ++i)
    for (End* end : {&a, &b}) end->transport->progress();
  if (a.failed > 0 || !b.got.empty() || !b.lost.empty()) return 7;
  flood.reset();
  return together({&a, &b}, [&] { return b.got.size() == 1; }) && a.lost.empty() ? 0 : 8;
}

TEST(ShmRenewal, GreetingsWaitWhileTooManyDescriptorsAreInFlight) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become a user without CAP_SYS_RESOURCE";
  const pid_t child = fork();
  if (child == 0) _exit(greet_while_no_descriptor_may_be_in_flight());
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the step of the child that went wrong";
}

}  // namespace
}  // namespace ringdist::test
