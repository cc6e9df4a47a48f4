#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "os/doorbell.h"
#include "os/socket.h"

namespace ringdist {
namespace {

struct Pair {
  Fd left;
  Fd right;
};

Pair connected() {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {Fd::open([&] { return ends[0]; }), Fd::open([&] { return ends[1]; })};
}

TEST(FdPassing, ADescriptorArrivesWithItsNote) {
  Pair pair = connected();
  auto doorbell = Doorbell::create();
  const std::array<std::byte, 3> note{std::byte{1}, std::byte{2}, std::byte{3}};
  const std::array<int, 1> fds{doorbell.value().write_end().get()};
  ASSERT_FALSE(send_with_fds(pair.left, note, fds));
  std::array<std::byte, 16> room{};
  bool empty = true;
  auto got = receive_with_fds(pair.right, room, empty);
  ASSERT_TRUE(got.ok() && !empty);
  EXPECT_EQ(got.value().bytes, 3u);
  EXPECT_EQ(room[2], std::byte{3});
  ASSERT_EQ(got.value().fds.size(), 1u);
  EXPECT_TRUE(fcntl(got.value().fds[0].get(), F_GETFD) & FD_CLOEXEC);
  const RemoteDoorbell theirs(std::move(got.value().fds[0]));
  theirs.ring();
  pollfd rung{doorbell.value().get(), POLLIN, 0};
  EXPECT_EQ(poll(&rung, 1, 0), 1);
}

// Also without descriptors. A read must not consume bytes of the next message.
TEST(FdPassing, NotesArriveOneByOne) {
  Pair pair = connected();
  const auto doorbell = Doorbell::create();
  const std::array<int, 1> fds{doorbell.value().write_end().get()};
  for (int i = 0; i < 4; ++i) {
    const std::array<std::byte, 3> note{static_cast<std::byte>(i)};
    ASSERT_FALSE(send_with_fds(pair.left, note, std::span(fds).first(i % 2)));
  }
  for (int i = 0; i < 4; ++i) {
    std::array<std::byte, 3> room{};
    bool empty = true;
    auto got = receive_with_fds(pair.right, room, empty);
    ASSERT_TRUE(got.ok() && !empty);
    EXPECT_EQ(got.value().bytes, 3u);
    EXPECT_EQ(room[0], static_cast<std::byte>(i));
    EXPECT_EQ(got.value().fds.size(), static_cast<size_t>(i % 2));
  }
}

TEST(FdPassing, NothingYetIsNotTheEnd) {
  Pair pair = connected();
  std::array<std::byte, 16> room{};
  bool empty = false;
  ASSERT_TRUE(receive_with_fds(pair.right, room, empty).ok());
  EXPECT_TRUE(empty);
  pair.left.reset();
  auto end = receive_with_fds(pair.right, room, empty);
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(empty);
  EXPECT_EQ(end.value().bytes, 0u);
}

TEST(FdPassing, AClosedPeerIsAnError) {
  Pair pair = connected();
  auto doorbell = Doorbell::create();
  pair.right.reset();
  const std::array<int, 1> fds{doorbell.value().write_end().get()};
  EXPECT_TRUE(send_with_fds(pair.left, std::array{std::byte{1}}, fds));
}

}  // namespace
}  // namespace ringdist
