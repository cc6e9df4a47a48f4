// What is particular to transport `shm`; what it shares with the others is in conformance/.
#include "transport/shm/shm.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "os/random.h"
#include "os/socket.h"
#include "transport/shm/hello.h"
#include "transport/shm/layout.h"

namespace ringdist {
namespace {

constexpr auto kDeadline = std::chrono::seconds(20);

struct End final : Receiver {
  ContextId id = random_id();
  std::unique_ptr<Transport> transport;
  std::vector<std::vector<std::byte>> got;
  std::vector<std::pair<ContextId, Error>> lost;
  int sent = 0;
  int failed = 0;

  End() {
    TransportConfig config;
    config.context_id = id;
    auto made = shm_create(config, *this);
    EXPECT_TRUE(made.ok()) << made.error().what();
    transport = std::move(made.value());
  }
  void on_message(ConstBytes header, ConstBytes payload) override {
    EXPECT_EQ(header.size(), sizeof(int));
    got.emplace_back(payload.begin(), payload.end());
  }
  void on_peer_lost(std::string_view, ContextId peer, const Error& cause) override {
    lost.emplace_back(peer, cause);
  }

  void knows(End& other) {
    ASSERT_FALSE(transport->add_peer(other.id, other.transport->address()));
  }
  void send(End& to, ConstBytes payload) {
    static const int kHeader = 7;
    transport->send(to.id, std::as_bytes(std::span(&kHeader, 1)), payload,
                    [this](const Error& error) { ++(error ? failed : sent); });
  }
};

bool together(std::initializer_list<End*> ends, const std::function<bool()>& done) {
  const TimePoint deadline = Clock::now() + kDeadline;
  while (!done()) {
    if (Clock::now() > deadline) return false;
    for (End* end : ends) end->transport->progress();
  }
  return true;
}

// So that a first message has made the link.
void connect(End& from, End& to) {
  from.knows(to);
  const size_t before = to.got.size();
  from.send(to, {});
  ASSERT_TRUE(together({&from, &to}, [&] { return to.got.size() > before; }));
  to.got.clear();
  from.sent = 0;
}

std::vector<std::byte> numbered(size_t size, int number) {
  return std::vector<std::byte>(size, static_cast<std::byte>(number));
}

bool readable(const Transport& transport, int milliseconds) {
  pollfd entry{transport.event_fd(), POLLIN, 0};
  return poll(&entry, 1, milliseconds) == 1;
}

TEST(Shm, AFullRingHoldsBackAndLosesNothing) {
  End a;
  End b;
  connect(a, b);
  constexpr int kMessages = 5 * static_cast<int>(shm::kSlots);
  std::vector<std::vector<std::byte>> payloads;
  for (int i = 0; i < kMessages; ++i) payloads.push_back(numbered(i % 3 == 0 ? 3000 : 8, i));
  for (const auto& payload : payloads) a.send(b, payload);
  EXPECT_EQ(a.sent, static_cast<int>(shm::kSlots));
  a.transport->ask_delivery();
  EXPECT_FALSE(a.transport->delivered());
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == payloads.size(); }));
  EXPECT_EQ(a.sent, kMessages);
  EXPECT_EQ(b.got, payloads);
  EXPECT_TRUE(together({&a}, [&] { return a.transport->delivered(); }));
}

TEST(Shm, APeerThatReadsNothingLeavesRoomForOthers) {
  End a;
  End stuck;
  End b;
  connect(a, stuck);
  connect(a, b);
  const auto payload = numbered(a.transport->max_payload(), 1);
  for (int i = 0; i < 300; ++i) a.send(stuck, payload);
  for (int i = 0; i < 300; ++i) a.send(b, payload);
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == 300; }));
  EXPECT_LT(a.sent, 600);
  a.transport->drop_peer(stuck.id);
  EXPECT_EQ(a.sent + a.failed, 600);
}

TEST(Shm, ManyStuckPeersLeaveEachOneAMessage) {
  End a;
  std::vector<std::unique_ptr<End>> stuck(8);
  const auto payload = numbered(a.transport->max_payload(), 1);
  for (auto& one : stuck) {
    one = std::make_unique<End>();
    connect(a, *one);
    for (int i = 0; i < 20; ++i) a.send(*one, payload);
  }
  EXPECT_FALSE(a.transport->reserve(payload.size()));
  End b;
  connect(a, b);
  for (int i = 0; i < 20; ++i) a.send(b, payload);
  EXPECT_TRUE(together({&a, &b}, [&] { return b.got.size() == 20; }));
}

TEST(Shm, ASleeperThatWantsRoomIsWoken) {
  End a;
  End b;
  connect(a, b);
  const auto payload = numbered(8, 1);
  for (size_t i = 0; i < 2 * shm::kSlots; ++i) a.send(b, payload);
  while (a.transport->progress()) {
  }
  ASSERT_TRUE(a.transport->arm());
  EXPECT_FALSE(readable(*a.transport, 0));
  b.transport->progress();
  EXPECT_TRUE(readable(*a.transport, 5000));
  EXPECT_TRUE(together({&a, &b}, [&] { return b.got.size() == 2 * shm::kSlots; }));
}

// Both sleep whenever they can: a wake-up that is lost stops the exchange for ever.
TEST(Shm, NoWakeUpIsLost) {
  End a;
  End b;
  a.knows(b);
  b.knows(a);
  constexpr size_t kRounds = 20000;
  const auto play = [](End& self, End& other, bool serves) {
    const TimePoint deadline = Clock::now() + kDeadline;
    const auto payload = numbered(8, 1);
    if (serves) self.send(other, payload);
    for (size_t heard = 0; heard < kRounds && Clock::now() < deadline;) {
      if (self.transport->progress()) {
        for (; heard < self.got.size(); ++heard)
          if (heard + 1 < kRounds || !serves) self.send(other, payload);
      } else if (self.transport->arm()) {
        ASSERT_TRUE(readable(*self.transport, 10000));
      }
    }
  };
  std::thread other([&] { play(b, a, false); });
  play(a, b, true);
  other.join();
  EXPECT_EQ(a.got.size(), kRounds);
  EXPECT_EQ(b.got.size(), kRounds);
}

TEST(Shm, WhatADeadPeerSentIsDeliveredBeforeItsLossIsTold) {
  End b;
  auto a = std::make_unique<End>();
  connect(*a, b);
  connect(b, *a);
  const auto payload = numbered(100'000, 3);
  for (int i = 0; i < 12; ++i) a->send(b, payload);
  const ContextId id = a->id;
  a.reset();
  ASSERT_TRUE(together({&b}, [&] { return !b.lost.empty(); }));
  EXPECT_EQ(b.got.size(), 12u);
  EXPECT_EQ(b.got.back(), payload);
  EXPECT_EQ(b.lost.front().first, id);
}

// A peer that was given up, but lives, must find what was sent to it unchanged.
TEST(Shm, ADroppedPeerReadsWhatItWasSentThoughOthersAreSentMore) {
  End a;
  End slow;
  End other;
  connect(a, slow);
  for (int i = 0; i < 10; ++i) a.send(slow, numbered(100'000, i));
  a.transport->drop_peer(slow.id);
  connect(a, other);  // which would get the same ring and chunks
  const auto more = numbered(100'000, 77);
  for (int i = 0; i < 40; ++i) a.send(other, more);
  ASSERT_TRUE(together({&a, &other}, [&] { return other.got.size() == 40; }));
  ASSERT_TRUE(together({&slow}, [&] { return !slow.lost.empty(); }));
  ASSERT_EQ(slow.got.size(), 10u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(slow.got[i], numbered(100'000, i));
}

TEST(Shm, WhatWasAskedForIsDeliveredOnceItIsConsumed) {
  End a;
  End b;
  connect(a, b);
  a.send(b, numbered(8, 1));
  a.transport->ask_delivery();
  EXPECT_EQ(a.sent, 1);
  EXPECT_FALSE(a.transport->delivered());
  ASSERT_TRUE(together({&a, &b}, [&] { return a.transport->delivered(); }));
  // What comes later is not part of the question.
  a.send(b, numbered(8, 1));
  EXPECT_TRUE(a.transport->delivered());
}

// The end of a peer whose last messages are read between two looks at the sockets.
TEST(Shm, ASleeperHearsOfTheEndOfAPeer) {
  auto a = std::make_unique<End>();
  End b;
  connect(*a, b);
  for (int i = 0; i < 20; ++i) a->send(b, numbered(8, i));
  a.reset();
  while (b.lost.empty()) {
    if (b.transport->progress() || !b.transport->arm()) continue;
    ASSERT_TRUE(readable(*b.transport, 5000)) << "asleep, and the loss is not told";
  }
  EXPECT_EQ(b.got.size(), 20u);
}

TEST(Shm, NobodyListens) {
  End a;
  End b;
  a.knows(b);
  b.transport->close();
  a.send(b, {});
  EXPECT_EQ(a.failed, 1);
  EXPECT_FALSE(a.transport->reaches(b.id));
  ASSERT_TRUE(together({&a}, [&] { return !a.lost.empty(); }));
  EXPECT_EQ(a.lost.size(), 1u);
}

// Somebody on the socket who is not one of us, with memory of its own making.
class Stranger {
 public:
  explicit Stranger(End& target) : target_(target) {
    const auto address = target.transport->address();
    const std::string name(reinterpret_cast<const char*>(address.data()), address.size());
    socket_ = connect_unix(name).fd;
    file_ = std::move(create_memory("ringdist-test", shm::kSegmentBytes).value());
    mapping_ = std::move(map_memory(file_, shm::kSegmentBytes, /*writable=*/true).value());
  }
  Error greet(uint32_t index) {
    return shm::send_hello(socket_, id_, target_.id, index, file_, bell_);
  }
  void say(std::string_view bytes) {
    ASSERT_EQ(write(socket_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  shm::Ring& ring() { return reinterpret_cast<shm::Segment*>(mapping_.data())->rings[0]; }
  bool is_refused() {
    return together({&target_}, [&] {
      std::array<char, 256> answer;
      return recv(socket_.get(), answer.data(), answer.size(), MSG_DONTWAIT) == 0;
    });
  }
  ContextId id() const { return id_; }

 private:
  End& target_;
  const ContextId id_ = random_id();
  Fd socket_;
  Fd file_;
  Mapping mapping_;
  EventFd bell_ = std::move(EventFd::create().value());
};

TEST(Shm, StrangersAreRefused) {
  End a;
  Stranger babbler(a);
  babbler.say("GET / HTTP/1.1\r\n");
  EXPECT_TRUE(babbler.is_refused());
  Stranger lost(a);
  ASSERT_FALSE(lost.greet(shm::kMaxLinks));
  EXPECT_TRUE(lost.is_refused());
  EXPECT_TRUE(a.lost.empty());
}

TEST(Shm, AMessageOutsideThePeersMemoryEndsTheLink) {
  struct Wrong {
    uint32_t header;
    uint32_t payload;
    uint64_t at;
    uint64_t published = 1;
  };
  for (const Wrong& wrong :
       {Wrong{4, 100, shm::kSegmentBytes - 99}, Wrong{4, 1, UINT64_MAX}, Wrong{4, 1000, 0},
        Wrong{shm::kSlotRoom + 1, 0, 0}, Wrong{4, UINT32_MAX, shm::kChunksAt},
        Wrong{4, 0, 0, shm::kSlots + 1}}) {
    End a;
    Stranger stranger(a);
    ASSERT_FALSE(stranger.greet(0));
    stranger.ring().slots[0].header_size = wrong.header;
    stranger.ring().slots[0].payload_size = wrong.payload;
    stranger.ring().slots[0].payload_at = wrong.at;
    stranger.ring().published.value = wrong.published;
    EXPECT_TRUE(stranger.is_refused());
    EXPECT_TRUE(a.got.empty());
    ASSERT_EQ(a.lost.size(), 1u);
    EXPECT_EQ(a.lost[0].first, stranger.id());
    EXPECT_EQ(a.lost[0].second.kind(), ErrorKind::kProtocol);
  }
}

TEST(Shm, AForkedChildLeavesTheParentsLinksAlone) {
  auto a = std::make_unique<End>();
  End b;
  connect(*a, b);
  const pid_t child = fork();
  if (child == 0) {
    a.reset();  // as the destructors of an exiting process would
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  a->send(b, numbered(5000, 1));
  EXPECT_TRUE(together({a.get(), &b}, [&] { return b.got.size() == 1; }));
  EXPECT_TRUE(b.lost.empty());
}

}  // namespace
}  // namespace ringdist
