// Payloads in shared tensors, which the peer reads in place.
#include <sys/wait.h>
#include <unistd.h>

#include "transport/shm/segment_layout.h"
#include "transport/shm_exporting.h"

namespace ringdist::test {
namespace {

TEST(ShmExports, AreReadWhereTheyLie) {
  End a;
  End b;
  connect(a, b);
  Tensor tensor(1);
  export_block(a, b, tensor);
  const uint64_t before = read_in_place();
  tensor.fill(2);
  a.send(b, tensor.part(1000));
  EXPECT_EQ(a.sent, 0) << "it ends when it has been read";
  tensor.fill(3);  // violates the contract, and so shows that no copy was sent
  ASSERT_TRUE(together({&a, &b}, [&] { return a.sent == 1; }));
  EXPECT_EQ(b.got[0], numbered(kPart, 3));
  EXPECT_EQ(read_in_place() - before, kPart);
}

TEST(ShmExports, ShortPayloadsAndOtherMemoryAreCopied) {
  End a;
  End b;
  connect(a, b);
  const Tensor tensor(1);
  export_block(a, b, tensor);
  const uint64_t before = read_in_place();
  const auto usual = numbered(kPart, 5);
  a.send(b, usual);
  a.send(b, tensor.part().first(shm::kMostCopied));
  a.transport->send(b.id, std::as_bytes(std::span("abc")), tensor.part(), kNoSendId);
  EXPECT_EQ(a.sent, 2);
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == 3; }));
  EXPECT_EQ(b.got[0], usual);
  EXPECT_EQ(read_in_place(), before);
}

TEST(ShmExports, KeepTheirOrderAmongOtherMessages) {
  End a;
  End b;
  connect(a, b);
  std::vector<std::unique_ptr<Tensor>> tensors;
  for (int i = 0; i < 3; ++i) {
    tensors.push_back(std::make_unique<Tensor>(100 + i));
    export_block(a, b, *tensors.back());
  }
  std::vector<std::vector<std::byte>> expected;
  for (int i = 0; i < 3 * static_cast<int>(shm::kSlots); ++i) {
    if (i % 4 == 3)
      expected.push_back(numbered(i % 8 == 3 ? 8 : 5000, i));
    else
      expected.push_back(numbered(kPart, 100 + i % 4));
  }
  for (int i = 0; i < static_cast<int>(expected.size()); ++i)
    a.send(b, i % 4 == 3 ? ConstBytes(expected[i]) : tensors[i % 4]->part(i));
  ASSERT_TRUE(together({&a, &b}, [&] { return a.sent == static_cast<int>(expected.size()); }));
  EXPECT_EQ(b.got, expected);
}

TEST(ShmExports, GoToSeveralPeersFromOnePlace) {
  End a;
  End b;
  End c;
  connect(a, b);
  connect(a, c);
  Tensor tensor(1);
  export_block(a, b, tensor);
  export_block(a, c, tensor);
  EXPECT_EQ(mapped(), 3);
  tensor.fill(4);
  a.send(b, tensor.part());
  a.send(c, tensor.part());
  ASSERT_TRUE(together({&a, &b}, [&] { return a.sent == 1; }));
  ASSERT_TRUE(together({&a, &c}, [&] { return a.sent == 2; }));
  EXPECT_EQ(b.got[0], numbered(kPart, 4));
  EXPECT_EQ(c.got[0], numbered(kPart, 4));
}

// If the reader has enough messages to read in place, an idle sender copies every other one for
// it.
TEST(ShmExports, AnIdleSenderCopiesEveryOther) {
  constexpr int kMessages = 12;
  for (const bool idle : {true, false}) {
    End a;
    End b;
    connect(a, b);
    connect(b, a);
    const Tensor tensor(1);
    export_block(a, b, tensor);
    if (!idle) b.send(a, {});
    const uint64_t before = read_in_place();
    for (int i = 0; i < kMessages; ++i) a.send(b, tensor.part());
    const uint64_t read = (read_in_place() - before) / kPart;
    if (idle)
      EXPECT_EQ(read, kMessages / 2);
    else
      EXPECT_EQ(read, kMessages);
    ASSERT_TRUE(together({&a, &b}, [&] { return a.sent == kMessages; }));
    EXPECT_EQ(b.got, std::vector(kMessages, numbered(kPart, 1)));
  }
}

TEST(ShmExports, ASleeperIsWokenWhenItsTensorHasBeenRead) {
  End a;
  End b;
  connect(a, b);
  const Tensor tensor(1);
  export_block(a, b, tensor);
  a.send(b, tensor.part());
  while (a.transport->progress()) {
  }
  ASSERT_TRUE(a.transport->arm());
  EXPECT_FALSE(readable(*a.transport, 0));
  b.transport->progress();
  EXPECT_TRUE(readable(*a.transport, 5000));
  a.transport->progress();
  EXPECT_EQ(a.sent, 1);
  a.send(b, tensor.part());
  b.transport->progress();
  EXPECT_FALSE(a.transport->arm()) << "it has been read already";
}

TEST(ShmExports, WithdrawnBeforeTheyAreReadDoNotCount) {
  End a;
  End b;
  connect(a, b);
  Tensor tensor(1);
  export_block(a, b, tensor);
  const SendId send_id = a.send(b, tensor.part());
  a.send(b, tensor.part());
  std::vector<bool> held;
  b.reading = [&](const Payload& payload) { held.push_back(payload.still_valid()); };
  a.transport->revoke_payload(b.id, send_id);
  EXPECT_EQ(a.sent + a.failed, 0) << "its memory is held until it cannot be read any more";
  ASSERT_TRUE(together({&a, &b}, [&] { return a.sent == 2; }));
  EXPECT_EQ(held, (std::vector{false, true}));
}

TEST(ShmExports, WithdrawnWhileTheyAreReadDoNotCount) {
  End a;
  End b;
  connect(a, b);
  Tensor tensor(1);
  export_block(a, b, tensor);
  const SendId send_id = a.send(b, tensor.part());
  bool held_before = false;
  bool held_after = true;
  b.reading = [&](const Payload& payload) {
    held_before = payload.still_valid();
    a.transport->revoke_payload(b.id, send_id);
    held_after = payload.still_valid();
  };
  ASSERT_TRUE(together({&a, &b}, [&] { return a.sent == 1; }));
  EXPECT_TRUE(held_before);
  EXPECT_FALSE(held_after);
}

// While the ring is full, the peer has received nothing about these messages.
TEST(ShmExports, WithdrawnWhileTheyWaitAreNotSent) {
  End a;
  End b;
  connect(a, b);
  Tensor tensor(1);
  export_block(a, b, tensor);
  const auto fill = numbered(8, 9);
  for (size_t i = 0; i < shm::kSlots; ++i) a.send(b, fill);
  a.sent = 0;
  const auto usual = numbered(kPart, 2);
  const SendId exported = a.send(b, tensor.part());
  const SendId copied = a.send(b, usual);
  a.send(b, fill);
  a.transport->revoke_payload(b.id, exported);
  a.transport->revoke_payload(b.id, copied);
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == shm::kSlots + 1; }));
  EXPECT_EQ(a.sent, 1);
  EXPECT_EQ(a.failed, 2);
  EXPECT_EQ(b.got, std::vector(shm::kSlots + 1, fill));
}

TEST(ShmExports, OfAPeerThatIsGivenUpEndAndCountNoMore) {
  End a;
  End slow;
  End other;
  connect(a, slow);
  Tensor tensor(1);
  export_block(a, slow, tensor);
  for (int i = 0; i < 2; ++i) a.send(slow, tensor.part());
  a.transport->drop_peer(slow.id);
  EXPECT_EQ(a.failed, 2);
  tensor.fill(2);
  connect(a, other);
  slow.reading = [](const Payload& payload) { EXPECT_FALSE(payload.still_valid()); };
  ASSERT_TRUE(together({&slow}, [&] { return !slow.lost.empty(); }));
  ASSERT_TRUE(together({&a}, [&] { return mapped() == 1; }));
}

TEST(ShmExports, ExportsOfADeadPeerAreReadToTheEnd) {
  End b;
  auto a = std::make_unique<End>();
  connect(*a, b);
  auto tensor = std::make_unique<Tensor>(1);
  export_block(*a, b, *tensor);
  // The process dies, so nothing is revoked.
  const ContextId id = random_id();
  const pid_t child = fork();
  if (child == 0) {
    End dying(id);
    dying.knows(b);
    Tensor last(6);
    dying.send(b, last.part());
    for (int i = 0; i < 2000 && dying.sent == 0; ++i) {
      dying.transport->progress();
      usleep(1000);
    }
    usleep(50'000);
    dying.transport->progress();
    dying.send(b, last.part());
    _exit(dying.sent == 1 ? 0 : 1);  // the second message waits to be read
  }
  const std::string name = "@ringdist-shm-" + std::to_string(child) + "-0";
  ASSERT_FALSE(b.transport->add_peer(id, std::as_bytes(std::span(name))));
  int status = -1;
  ASSERT_TRUE(together({&b}, [&] { return waitpid(child, &status, WNOHANG) == child; }));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ASSERT_TRUE(together({&b}, [&] { return !b.lost.empty(); }));
  ASSERT_EQ(b.got.size(), 2u);
  EXPECT_EQ(b.got[1], numbered(kPart, 6));
  ASSERT_TRUE(together({&b}, [&] { return mapped() == 2; }));
}

TEST(ShmExports, AreUnmappedWhenTheirTensorIsFreed) {
  End a;
  End b;
  connect(a, b);
  {
    const Tensor first(1);
    const Tensor second(2);
    export_block(a, b, first);
    export_block(a, b, second);
    EXPECT_EQ(mapped(), 4);
  }
  EXPECT_TRUE(readable(*a.transport, 0)) << "whoever sleeps must tell the reader";
  EXPECT_EQ(mapped(), 2);
  ASSERT_TRUE(together({&a, &b}, [] { return mapped() == 0; }));
  const Tensor third(3);
  export_block(a, b, third);
  a.send(b, third.part());
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == 1; }));
  EXPECT_EQ(b.got[0], numbered(kPart, 3));
}

// A sleeping reader is woken for this, too.
TEST(ShmExports, AreUnmappedByASleeper) {
  End a;
  End b;
  connect(a, b);
  {
    const Tensor tensor(1);
    export_block(a, b, tensor);
  }
  while (b.transport->progress() || !b.transport->arm()) {
  }
  a.transport->progress();
  EXPECT_TRUE(readable(*b.transport, 5000));
  b.transport->progress();
  EXPECT_EQ(mapped(), 0);
}

TEST(ShmExports, ComeAndGoForEver) {
  End a;
  End b;
  connect(a, b);
  for (int i = 0; i < 1000; ++i) {
    const Tensor tensor(i, kPart);
    a.send(b, tensor.part());
    ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == 1; }));
    EXPECT_EQ(b.got[0], numbered(kPart, i));
    b.got.clear();
  }
  ASSERT_TRUE(together({&a, &b}, [] { return mapped() == 0; }));
}

// No descriptor is left for the tensor's file. The connection exists already.
TEST(ShmExports, AReaderWithoutADescriptorIsSentCopies) {
#ifdef RINGDIST_SANITIZED
  GTEST_SKIP() << "the sanitizer looks at memory through descriptors of its own";
#endif
  End a;
  End b;
  connect(a, b);
  const Tensor first(1);
  export_block(a, b, first);
  Tensor tensor(1);
  a.send(b, tensor.part());
  {
    const NoDescriptors none;
    const TimePoint end = Clock::now() + std::chrono::milliseconds(20);
    ASSERT_TRUE(together({&a, &b}, [&] { return Clock::now() > end; }));
  }
  const uint64_t before = read_in_place();
  EXPECT_EQ(mapped(), 3);
  for (int i = 0; i < 5; ++i) {
    tensor.fill(i);
    a.send(b, tensor.part());
    EXPECT_EQ(a.sent, 2 + i);
  }
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == 6; }));
  EXPECT_EQ(b.got[5], numbered(kPart, 4));
  EXPECT_EQ(read_in_place(), before);
  EXPECT_TRUE(b.lost.empty());
}

TEST(ShmExports, AForkedChildTakesNothingBack) {
  auto a = std::make_unique<End>();
  End b;
  connect(*a, b);
  Tensor tensor(1);
  export_block(*a, b, tensor);
  const pid_t child = fork();
  if (child == 0) {
    tensor.fill(8);
    a.reset();
    SharedBlockRegistry::of_process().free(tensor.all().data());
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  a->send(b, tensor.part());
  ASSERT_TRUE(together({a.get(), &b}, [&] { return a->sent == 1; }));
  EXPECT_EQ(b.got[0], numbered(kPart, 8));
}

}  // namespace
}  // namespace ringdist::test
