// Contract of every transport (transport/transport.h), for each row of the registry: with both
// ends in one process, and with two processes.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/config.h"
#include "conformance/transport_fixture.h"
#include "transport/ucx_plugin.h"

namespace ringdist {
namespace {

TEST_P(TransportConformance, DeliversEverySizeOnceInOrder) {
  const std::vector<size_t> sizes{0, 1, 3, 4096, 65537, a_.transport->max_payload()};
  std::vector<std::vector<std::byte>> payloads;
  for (size_t i = 0; i < sizes.size(); ++i)
    payloads.push_back(pattern(sizes[i], static_cast<int>(i)));
  size_t completed = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto header = pattern(i + 1, 99);
    a_.send(b_.config.context_id, header, lay(payloads[i]), [&](const Error& error) {
      EXPECT_FALSE(error);
      ++completed;
    });
  }
  ASSERT_TRUE(
      both_until([&] { return completed == sizes.size() && b_.inbox.got.size() == sizes.size(); }));
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(b_.inbox.got[i].header, pattern(i + 1, 99));
    EXPECT_EQ(b_.inbox.got[i].payload, payloads[i]);
    EXPECT_EQ(b_.inbox.got[i].from, row_.name == "ucx" ? 0 : a_.config.context_id);
  }
}

TEST_P(TransportConformance, SendsBothWaysAtOnce) {
  constexpr int kMessages = 200;
  const auto payload = pattern(60000, 5);
  const ConstBytes laid = lay(payload);
  int completed = 0;
  for (int i = 0; i < kMessages; ++i)
    for (auto [from, to] : {std::pair(&a_, &b_), std::pair(&b_, &a_)})
      from->send(to->config.context_id, pattern(8, i), laid, [&](const Error& error) {
        EXPECT_FALSE(error);
        ++completed;
      });
  ASSERT_TRUE(both_until([&] {
    return completed == 2 * kMessages && a_.inbox.got.size() == kMessages &&
           b_.inbox.got.size() == kMessages;
  }));
  for (const auto& got : a_.inbox.got) ASSERT_EQ(got.payload, payload);
}

TEST_P(TransportConformance, ReservedMemoryGoesToAllPeersAndComesBack) {
  const auto header = pattern(16, 1);
  int completed = 0;
  constexpr int kRounds = 300;  // more than there are buffers, so buffers must be reused
  for (int round = 0; round < kRounds; ++round) {
    std::optional<Bytes> space;
    ASSERT_TRUE(both_until([&] {
      space = a_.transport->reserve(1000);
      return space.has_value();
    }));
    ASSERT_EQ(space->size(), 1000u);
    const auto bytes = pattern(1000, round);
    std::copy(bytes.begin(), bytes.end(), space->begin());
    std::vector<OutgoingMessage> to;
    for (int copy = 0; copy < 2; ++copy)
      to.push_back({b_.config.context_id, header, a_.inbox.sends.begin([&](const Error& error) {
                      EXPECT_FALSE(error);
                      ++completed;
                    })});
    a_.transport->commit(*space, 900, to);
  }
  ASSERT_TRUE(
      both_until([&] { return completed == 2 * kRounds && b_.inbox.got.size() == 2 * kRounds; }));
  for (int round = 0; round < kRounds; ++round) {
    auto expected = pattern(1000, round);
    expected.resize(900);
    ASSERT_EQ(b_.inbox.got[2 * round].payload, expected);
    ASSERT_EQ(b_.inbox.got[2 * round + 1].payload, expected);
  }
  for (int round = 0; round < kRounds; ++round) {
    const auto unused = a_.transport->reserve(10);
    ASSERT_TRUE(unused) << "none came back, round " << round;
    a_.transport->commit(*unused, 0, {});
  }
}

TEST_P(TransportConformance, ASendWithoutIdIsNotReported) {
  const auto payload = pattern(100, 2);
  a_.transport->send(b_.config.context_id, pattern(8, 1), payload, kNoSendId);
  ASSERT_TRUE(both_until([&] { return b_.inbox.got.size() == 1; }));
  a_.transport->close();  // the inbox rejects completions of sends that it did not begin
  EXPECT_EQ(b_.inbox.got[0].payload, payload);
}

TEST_P(TransportConformance, TheEventWakesASleeper) {
  // Connecting causes events of its own, so it comes first.
  a_.send(b_.config.context_id, pattern(8, 0), {}, [](const Error&) {});
  ASSERT_TRUE(both_until([&] { return b_.inbox.got.size() == 1; }));
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    bool sent = false;
    a_.send(b_.config.context_id, pattern(8, 1), {}, [&](const Error&) { sent = true; });
    a_.progress_until([&] { return sent; });
  });
  const TimePoint deadline = Clock::now() + kDeadline;
  while (b_.inbox.got.size() < 2 && Clock::now() < deadline) {
    if (b_.transport->progress() || !b_.transport->arm()) continue;
    Duration sleep = std::chrono::seconds(5);
    if (auto due = b_.transport->due()) sleep = std::min(sleep, *due - Clock::now());
    fd_set set;
    FD_ZERO(&set);
    FD_SET(b_.transport->event_fd(), &set);
    const auto us =
        std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::microseconds>(sleep).count());
    timeval timeout{us / 1000000, us % 1000000};
    select(b_.transport->event_fd() + 1, &set, nullptr, nullptr, &timeout);
  }
  sender.join();
  EXPECT_EQ(b_.inbox.got.size(), 2u);
}

// Closing a socket with unread data resets the connection, which discards data that the peer has
// not read yet.
TEST_P(TransportConformance, WhatWasSentArrivesThoughItsSenderCloses) {
  const auto say = [](End& from, End& to, ConstBytes payload) {
    from.send(to.config.context_id, pattern(8, 0), payload,
              [](const Error& error) { EXPECT_FALSE(error); });
  };
  say(a_, b_, {});
  say(b_, a_, {});
  ASSERT_TRUE(both_until([&] { return a_.inbox.got.size() == 1 && b_.inbox.got.size() == 1; }));
  constexpr size_t kMessages = 12;  // more than a reader takes from its socket in one go
  const auto payload = pattern(a_.transport->max_payload(), 3);
  const ConstBytes laid = lay(payload);
  for (size_t i = 0; i < kMessages; ++i) say(a_, b_, laid);
  std::atomic<bool> spoken = false;
  std::thread slow_reader([&] {
    say(b_, a_, {});  // the sender does not read this before it closes
    spoken = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    b_.progress_until(
        [&] { return b_.inbox.got.size() == 1 + kMessages || !b_.inbox.lost.empty(); });
  });
  while (!spoken) std::this_thread::yield();
  a_.transport->begin_flush();
  EXPECT_TRUE(a_.progress_until([&] { return a_.transport->flushed(); }));
  a_.transport->close();
  slow_reader.join();
  ASSERT_EQ(b_.inbox.got.size(), 1 + kMessages);
  for (size_t i = 0; i < kMessages; ++i) EXPECT_EQ(b_.inbox.got[1 + i].payload, payload);
}

// If a process has ended, everything that it had sent is delivered before its end is reported.
TEST_P(TransportConformance, DrainedWhenWhatWasSentIsDelivered) {
  const auto say = [this](const std::vector<std::byte>& payload) {
    a_.send(b_.config.context_id, pattern(8, 0), payload,
            [](const Error& error) { EXPECT_FALSE(error); });
  };
  say({});
  ASSERT_TRUE(both_until([&] { return b_.inbox.got.size() == 1; }));
  constexpr size_t kMessages = 40;
  for (size_t i = 0; i < kMessages; ++i) say(pattern(100, static_cast<int>(i)));
  EXPECT_TRUE(b_.progress_until([&] { return b_.transport->drained(a_.config.context_id); }));
  EXPECT_EQ(b_.inbox.got.size(), 1 + kMessages);
}

TEST_P(TransportConformance, ADroppedPeerFailsItsSends) {
  a_.transport->drop_peer(b_.config.context_id);
  EXPECT_FALSE(a_.transport->reaches(b_.config.context_id) && row_.name != "local");
  Error error;
  bool done = false;
  a_.send(b_.config.context_id, pattern(8, 0), {}, [&](const Error& e) {
    error = e;
    done = true;
  });
  ASSERT_TRUE(both_until([&] { return done; }));
  EXPECT_TRUE(error);
}

// The host of a peer was cut off while much was sent to it, so both sides have dropped each other.
// Then the connection works again. UCX 1.22 used freed memory here: an endpoint that was closed
// with data left reads that the peer has closed, too, and becomes writable at the same time.
TEST_P(TransportConformance, ADroppedPeerMayBeReachedAgain) {
  constexpr int kMessages = 100;  // far more than the socket buffers hold
  const ConstBytes payload = lay(pattern(a_.transport->max_payload(), 0));
  int ended = 0;
  for (auto [from, to] : {std::pair(&a_, &b_), std::pair(&b_, &a_)}) {
    from->send(to->config.context_id, pattern(8, 0), {}, [](const Error&) {});
    ASSERT_TRUE(both_until([&, to = to] { return to->inbox.got.size() == 1; }));
  }
  for (int i = 0; i < kMessages; ++i)
    a_.send(b_.config.context_id, pattern(8, i), payload, [&](const Error&) { ++ended; });
  const auto progress_for = [](End& end, Milliseconds time) {
    for (const TimePoint until = Clock::now() + time; Clock::now() < until;)
      (void)end.transport->progress();
  };
  progress_for(a_, Milliseconds(50));
  a_.transport->drop_peer(b_.config.context_id);
  progress_for(a_, Milliseconds(20));
  b_.transport->drop_peer(a_.config.context_id);
  for (int i = 0; i < 10; ++i) {
    progress_for(b_, Milliseconds(20));
    progress_for(a_, Milliseconds(20));
  }
  a_.transport->close();
  EXPECT_EQ(ended, kMessages);
}

TEST_P(TransportConformance, CloseCompletesEverything) {
  const ConstBytes payload = lay(pattern(a_.transport->max_payload(), 0));
  int completed = 0;
  constexpr int kMessages =
      100;  // far more than the socket buffers hold, and the peer does not read
  for (int i = 0; i < kMessages; ++i)
    a_.send(b_.config.context_id, pattern(8, i), payload, [&](const Error&) { ++completed; });
  const auto before = Clock::now();
  a_.transport->close();
  EXPECT_LT(seconds(Clock::now() - before), 2.0);
  EXPECT_EQ(completed, kMessages);
}

constexpr const char* kPeerVariable = "RINGDIST_TEST_PEER";  // "<transport> <descriptor>"

// Peer process of ADeadProcess. It is started by exec, because UCX does not survive a fork, takes
// ten messages and dies. Without the variable the test does nothing.
TEST(PeerProcess, TakesTenMessagesAndDies) {
  const char* told = std::getenv(kPeerVariable);
  if (!told) return;
  std::istringstream words(told);
  std::string name;
  int fd = -1;
  words >> name >> fd;
  End end(*find_transport(name), {});
  const auto address = end.transport->address();
  ASSERT_EQ(write(fd, &end.config.context_id, 8), 8);
  ASSERT_EQ(write(fd, address.data(), address.size()), static_cast<ssize_t>(address.size()));
  ContextId from = 0;
  std::vector<std::byte> its(65536);
  ASSERT_EQ(read(fd, &from, 8), 8);
  its.resize(std::max<ssize_t>(0, read(fd, its.data(), its.size())));
  ASSERT_FALSE(end.transport->add_peer(from, its));
  _exit(end.progress_until([&] { return end.inbox.got.size() >= 10; }) ? 42 : 1);
}

pid_t start_peer(std::string_view transport, int fd) {
  const std::string told = std::string(transport) + " " + std::to_string(fd);
  const pid_t child = fork();
  if (child != 0) return child;
  setenv(kPeerVariable, told.c_str(), 1);
  for (const char* shard : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) unsetenv(shard);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  execl(self.c_str(), self.c_str(), "--gtest_filter=PeerProcess.*", nullptr);
  _exit(127);
}

TEST_P(TransportConformance, ADeadProcessFailsItsSends) {
  if (!row_.of_processes) GTEST_SKIP() << "it connects threads of one process only";
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  const pid_t child = start_peer(row_.name, pair[1]);
  close(pair[1]);
  ContextId id = 0;
  std::vector<std::byte> address(65536);
  ASSERT_EQ(read(pair[0], &id, 8), 8);
  address.resize(std::max<ssize_t>(0, read(pair[0], address.data(), address.size())));
  ASSERT_FALSE(address.empty());
  ASSERT_FALSE(a_.transport->add_peer(id, address));
  const auto mine = a_.transport->address();
  ASSERT_EQ(write(pair[0], &a_.config.context_id, 8), 8);
  ASSERT_EQ(write(pair[0], mine.data(), mine.size()), static_cast<ssize_t>(mine.size()));
  const ConstBytes payload = lay(pattern(200000, 3));
  int sent = 0;
  int flushed = 0, failed = 0;
  const bool ended = a_.progress_until([&] {
    while (sent - flushed - failed < 8 && failed == 0) {
      ++sent;
      a_.send(id, pattern(8, sent), payload,
              [&](const Error& error) { ++(error ? failed : flushed); });
    }
    return failed > 0 && !a_.inbox.lost.empty() && flushed + failed == sent;
  });
  EXPECT_TRUE(ended) << "delivered " << flushed << ", failed " << failed;
  EXPECT_FALSE(a_.transport->reaches(id));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  close(pair[0]);
}

std::vector<const TransportRow*> rows() {
  std::vector<const TransportRow*> out;
  for (const TransportRow& row : transports()) out.push_back(&row);
  out.push_back(&kSimRow);
  return out;
}

TEST(Transports, TheOptionTakesThoseThatProcessesOpen) {
  for (const TransportRow& row : transports()) {
    const auto parsed = Config::parse({}, {{"transport", std::string(row.name)}});
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(!check_forced_transport(parsed.value()), row.of_processes) << row.name;
  }
  EXPECT_FALSE(check_forced_transport(Config::parse({}, {}).value()));
  for (const std::string list : {"shm,tcp", "ucx,shm"})
    EXPECT_FALSE(check_forced_transport(Config::parse({}, {{"transport", list}}).value())) << list;
  for (const std::string list : {"shm,", ",shm", "shm,,tcp", "shm, tcp", "shm,local"})
    EXPECT_TRUE(check_forced_transport(Config::parse({}, {{"transport", list}}).value())) << list;
  const auto pigeon = Config::parse({{"RINGDIST_TRANSPORT", "pigeon"}}, {});
  const std::string message = check_forced_transport(pigeon.value()).message();
  EXPECT_TRUE(message.starts_with("RINGDIST_TRANSPORT=\"pigeon\" is not valid; accepted: \"\", "))
      << message;
  for (const std::string& name : process_transports())
    EXPECT_NE(message.find(", " + name), std::string::npos) << message;
}

// RINGDIST_UCX=system must not load the UCX of a wheel.
TEST(Ucx, IsTheOneThatWasAskedFor) {
  auto loaded = load_ucx(wants_system_ucx());
  ASSERT_TRUE(loaded.ok()) << loaded.error().what();
  const std::string path = loaded_ucx_path();
  EXPECT_EQ(path.find("/site-packages/") == std::string::npos, wants_system_ucx()) << path;
}

std::string name_of(const testing::TestParamInfo<Param>& info) {
  return std::string(std::get<0>(info.param)->name) + (std::get<1>(info.param) ? "_shared" : "");
}

INSTANTIATE_TEST_SUITE_P(Registry, TransportConformance,
                         testing::Combine(testing::ValuesIn(rows()), testing::Bool()), name_of);

}  // namespace
}  // namespace ringdist
