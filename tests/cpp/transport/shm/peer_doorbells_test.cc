#include "transport/shm/peer_doorbells.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace ringdist::shm {
namespace {

constexpr uint64_t kFirstKey = 100;

class PeerDoorbellsTest : public testing::Test {
 protected:
  Epoll epoll_ = std::move(Epoll::create().value());
  PeerDoorbells bells_{epoll_, kFirstKey};
  Doorbell doorbell_ = std::move(Doorbell::create().value());

  Fd write_end() {
    return Fd::open([this] { return dup(doorbell_.write_end().get()); });
  }
  bool rung() {
    Epoll mine = std::move(Epoll::create().value());
    return !mine.add(doorbell_.get(), EPOLLIN, 1) && mine.wait(Duration(0)).size() == 1;
  }
};

TEST_F(PeerDoorbellsTest, OfOnePeerIsOneWhateverComesLater) {
  auto first = bells_.add(5, write_end());
  Doorbell another = std::move(Doorbell::create().value());
  auto second = bells_.add(5, Fd::open([&] { return dup(another.write_end().get()); }));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first.value(), second.value());
  second.value()->ring();
  EXPECT_TRUE(rung());
  EXPECT_NE(bells_.add(6, write_end()).value(), first.value());
}

TEST_F(PeerDoorbellsTest, TellWhoIsGoneOnce) {
  const auto doorbell = bells_.add(5, write_end()).value();
  EXPECT_TRUE(epoll_.wait(Duration(0)).empty());
  EXPECT_FALSE(bells_.on_event(kFirstKey + 1));
  EXPECT_FALSE(doorbell->closed());
  doorbell_.close();
  const auto events = epoll_.wait(std::chrono::seconds(5));
  ASSERT_EQ(events.size(), 1u);
  const uint64_t key = events[0].key;
  EXPECT_EQ(bells_.on_event(key), std::optional<ContextId>(5));
  EXPECT_TRUE(doorbell->closed());
  doorbell->ring();
  EXPECT_FALSE(bells_.on_event(key));
  EXPECT_TRUE(epoll_.wait(Duration(0)).empty());
}

TEST_F(PeerDoorbellsTest, AreClosedWithTheTransport) {
  const auto doorbell = bells_.add(5, write_end()).value();
  bells_.close();
  EXPECT_TRUE(doorbell->closed());
  doorbell->ring();
  EXPECT_FALSE(rung());
}

}  // namespace
}  // namespace ringdist::shm
