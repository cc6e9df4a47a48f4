// Properties of transport `shm` beyond those of all transports, which tests/cpp/conformance
// covers.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "transport/shm/segment_layout.h"
#include "transport/shm_fixture.h"

namespace ringdist::test {
namespace {

TEST(Shm, AFullRingHoldsBackAndLosesNothing) {
  End a;
  End b;
  connect(a, b);
  constexpr int kMessages = 5 * static_cast<int>(shm::kSlots);
  std::vector<std::vector<std::byte>> payloads;
  for (int i = 0; i < kMessages; ++i) payloads.push_back(numbered(i % 3 == 0 ? 3000 : 8, i));
  for (const auto& payload : payloads) a.send(b, payload);
  EXPECT_EQ(a.sent, static_cast<int>(shm::kSlots));
  a.transport->begin_flush();
  EXPECT_FALSE(a.transport->flushed());
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == payloads.size(); }));
  EXPECT_EQ(a.sent, kMessages);
  EXPECT_EQ(b.got, payloads);
  EXPECT_TRUE(together({&a}, [&] { return a.transport->flushed(); }));
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

// A chunk committed to several peers is held by the slowest of them.
TEST(Shm, APeerThatReadsNothingHoldsFewOfTheChunksThatAllGet) {
  End a;
  End stuck;
  End b;
  connect(a, stuck);
  connect(a, b);
  const int header = 7;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  constexpr int kRounds = 100;
  int done = 0;
  for (int i = 0; i < kRounds; ++i) {
    std::optional<Bytes> space;
    ASSERT_TRUE(together({&a, &b},
                         [&] {
                           space = a.transport->reserve(100'000);
                           return space.has_value();
                         }))
        << "after " << i;
    std::ranges::fill(*space, static_cast<std::byte>(i));
    const OutgoingMessage to[] = {
        {stuck.id, bytes, a.sends.begin([&](const Error& error) { done += !error; })},
        {b.id, bytes}};
    a.transport->commit(*space, space->size(), to);
  }
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == kRounds; }));
  EXPECT_LT(done, kRounds);
  ASSERT_TRUE(together({&a, &stuck}, [&] { return stuck.got.size() == kRounds; }));
  EXPECT_EQ(done, kRounds);
  for (int i = 0; i < kRounds; ++i) {
    EXPECT_EQ(b.got[i], numbered(100'000, i));
    EXPECT_EQ(stuck.got[i], numbered(100'000, i));
  }
}

// Returns the mapped bytes of other processes' segments.
size_t mapped_of_others() {
  std::ifstream maps("/proc/self/maps");
  size_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    size_t begin = 0;
    size_t end = 0;
    if (line.find(" r--s ") == std::string::npos ||
        line.find("/memfd:ringdist") == std::string::npos)
      continue;
    if (std::sscanf(line.c_str(), "%zx-%zx", &begin, &end) == 2) bytes += end - begin;
  }
  return bytes;
}

TEST(Shm, TheMemoryOfAPeerIsMappedAsFarAsItIsUsed) {
#ifdef RINGDIST_SANITIZED
  GTEST_SKIP() << "the thread sanitizer sees one mapping for all";
#endif
  constexpr size_t kMiB = size_t{1} << 20;
  End a;
  End b;
  connect(a, b);
  connect(b, a);
  EXPECT_LT(mapped_of_others(), kMiB);
  std::vector<std::vector<std::byte>> sent;
  for (int i = 0; i < 60; ++i) sent.push_back(numbered(i % 2 == 0 ? 4000 : 250'000, i));
  for (const auto& payload : sent) a.send(b, payload);
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == sent.size(); }));
  EXPECT_EQ(b.got, sent);
  EXPECT_LT(mapped_of_others(),
            13 * kMiB);  // the small chunks, and slightly more than 16 large ones
  EXPECT_GT(mapped_of_others(), 4 * kMiB);
}

// Messages of both kinds, so that messages with a chunk wait behind one without.
TEST(Shm, CommittedAndSentMessagesKeepTheirOrder) {
  End a;
  End b;
  b.knows(a);
  a.knows(b);  // the ring does not exist yet, so all messages wait
  const int header = 7;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  const auto plain = numbered(100'000, 200);
  a.send(b, plain);
  for (int i = 0; i < 40; ++i) {
    auto space = a.transport->reserve(100'000);
    ASSERT_TRUE(space) << "after " << i;
    std::ranges::fill(*space, static_cast<std::byte>(i));
    const OutgoingMessage to[] = {
        {b.id, bytes, a.sends.begin([&](const Error& error) { a.sent += !error; })}};
    a.transport->commit(*space, space->size(), to);
  }
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == 41; }));
  EXPECT_EQ(a.sent, 41);
  EXPECT_EQ(b.got[0], plain);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(b.got[i + 1], numbered(100'000, i));
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

// Both ends sleep whenever they can. One lost wake-up would stop the exchange for ever.
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

// A peer that was given up but lives must find the messages that were sent to it unchanged.
TEST(Shm, ADroppedPeerReadsWhatItWasSentThoughOthersAreSentMore) {
  End a;
  End slow;
  End other;
  connect(a, slow);
  for (int i = 0; i < 10; ++i) a.send(slow, numbered(100'000, i));
  a.transport->drop_peer(slow.id);
  connect(a, other);  // would reuse the ring and the chunks
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
  a.transport->begin_flush();
  EXPECT_EQ(a.sent, 1);
  EXPECT_FALSE(a.transport->flushed());
  ASSERT_TRUE(together({&a, &b}, [&] { return a.transport->flushed(); }));
  // The flush covers only earlier messages.
  a.send(b, numbered(8, 1));
  EXPECT_TRUE(a.transport->flushed());
}

// The end of a peer must wake a sleeper, even if its last messages are read between two polls of
// the sockets.
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

// Descriptors are limited, so many processes of a host must need few of them.
TEST(Shm, APeerCostsOneDescriptorWhoeverDialed) {
  const auto open_descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  End a;
  std::vector<std::unique_ptr<End>> peers(5);
  for (auto& peer : peers) peer = std::make_unique<End>();
  const auto before = open_descriptors();
  for (auto& peer : peers) {
    connect(a, *peer);
    connect(*peer, a);
  }
  EXPECT_EQ(open_descriptors() - before, 10);  // one at each end
  for (auto& peer : peers) peer->transport->close();
  ASSERT_TRUE(together({&a}, [&] { return a.lost.size() == 10; }));  // one report per link
  EXPECT_EQ(open_descriptors() - before, -10);  // also frees their listeners and doorbells
}

// The other process is killed, so nothing was closed in order.
TEST(Shm, AKilledPeerIsLost) {
  End a;
  std::array<int, 2> told{-1, -1};
  ASSERT_EQ(pipe(told.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    End b;
    b.knows(a);
    const auto address = b.transport->address();
    (void)!write(told[1], &b.id, sizeof b.id);
    (void)!write(told[1], address.data(), address.size());
    close(told[1]);
    while (b.got.size() < 3) b.transport->progress();
    kill(getpid(), SIGKILL);
  }
  close(told[1]);
  ContextId id = 0;
  ASSERT_EQ(read(told[0], &id, sizeof id), static_cast<ssize_t>(sizeof id));
  std::vector<std::byte> address(256);
  const ssize_t size = read(told[0], address.data(), address.size());
  close(told[0]);
  ASSERT_GT(size, 0);
  address.resize(static_cast<size_t>(size));
  ASSERT_FALSE(a.transport->add_peer(id, address));
  const int header = 7;
  for (int i = 0; i < 3; ++i)
    a.transport->send(id, std::as_bytes(std::span(&header, 1)), {}, kNoSendId);
  while (a.lost.empty()) {
    if (a.transport->progress() || !a.transport->arm()) continue;
    ASSERT_TRUE(readable(*a.transport, 5000)) << "asleep, and the loss is not told";
  }
  EXPECT_FALSE(a.transport->reaches(id));
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
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

TEST(Shm, AForkedChildLeavesTheParentsLinksAlone) {
  auto a = std::make_unique<End>();
  End b;
  connect(*a, b);
  const pid_t child = fork();
  if (child == 0) {
    a.reset();  // like the destructors of an exiting process
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
}  // namespace ringdist::test
