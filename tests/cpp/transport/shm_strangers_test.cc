// Processes that connect to transport `shm` without belonging there, or that send false values.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "os/doorbell.h"
#include "os/socket.h"
#include "transport/shm/block_exports.h"
#include "transport/shm/segment_layout.h"
#include "transport/shm/shm_hello.h"
#include "transport/shm_fixture.h"

namespace ringdist::test {
namespace {

// A process on the socket, with a segment of its own. The target has its address.
class Outsider {
 public:
  explicit Outsider(End& target) : target_(target) {
    socket_ = dial();
    file_ = std::move(create_memory("ringdist-test", shm::kSegmentBytes).value());
    mapping_ = std::move(map_memory(file_, shm::kSegmentBytes, /*writable=*/true).value());
    const std::string name = "@ringdist-shm-" + std::to_string(getpid()) + "-0";
    EXPECT_FALSE(target_.transport->add_peer(id_, std::as_bytes(std::span(name))));
  }
  Error greet(uint32_t index) {
    return shm::send_hello(socket_, id_, target_.id, index, file_, doorbell_.write_end());
  }
  Error greet_without_doorbell() {
    return shm::send_hello(socket_, id_, target_.id, 0, file_, file_);
  }
  void say(std::string_view bytes) {
    ASSERT_EQ(write(socket_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  // Sends a message over the export connection of a link that was greeted.
  bool export_block(const shm::ExportMessage& note, const Fd* file) {
    return shm::send_export_message(exports_, note, file);
  }
  Error open_exports(ContextId from, uint32_t index) {
    exports_ = dial();
    return shm::send_export_hello(exports_, from, target_.id, index);
  }
  // Is greeted and answered, and opens its export connection.
  void become_lender() {
    ASSERT_FALSE(greet(0));
    ASSERT_TRUE(is_read());
    ASSERT_FALSE(open_exports(id_, 0));
  }
  void hang_up_exports() { exports_.reset(); }
  bool exports_are_refused() { return is_closed(exports_); }
  const Fd& file() const { return file_; }
  shm::Ring& ring() { return reinterpret_cast<shm::ShmSegment*>(mapping_.data())->rings[0]; }
  // Returns the answer to an export.
  std::optional<shm::ExportMessageType> answer() {
    std::optional<shm::ExportMessageType> word;
    EXPECT_TRUE(together({&target_}, [&] {
      auto heard = shm::receive_export_message(exports_);
      if (heard.ok() && heard.value()) word = heard.value()->note.word;
      return word || !heard.ok();
    }));
    return word;
  }
  bool is_refused() { return is_closed(socket_); }
  // After its greeting was answered, returns true if its messages are read.
  bool is_read() {
    std::optional<shm::ReceivedHello> answer;
    EXPECT_TRUE(together({&target_}, [&] {
      auto got = shm::receive_hello(socket_, id_, /*reads=*/false);
      if (got.ok() && got.value()) answer = std::move(got.value());
      return answer.has_value();
    }));
    if (!answer) return false;
    const auto* front = reinterpret_cast<const shm::ControlBlock*>(answer->segment.data());
    return (front->consumed[answer->hello.index].value.load() & shm::kLast) == 0;
  }
  ContextId id() const { return id_; }

 private:
  Fd dial() const {
    const auto address = target_.transport->address();
    return connect_unix({reinterpret_cast<const char*>(address.data()), address.size()}).fd;
  }
  bool is_closed(const Fd& socket) {
    return together({&target_}, [&] {
      std::array<char, 256> answer;
      return recv(socket.get(), answer.data(), answer.size(), MSG_DONTWAIT) == 0;
    });
  }

  End& target_;
  const ContextId id_ = random_id();
  Fd socket_;
  Fd exports_;
  Fd file_;
  Mapping mapping_;
  Doorbell doorbell_ = std::move(Doorbell::create().value());
};

TEST(ShmStrangers, AreRefused) {
  End a;
  Outsider babbler(a);
  babbler.say("GET / HTTP/1.1\r\n");
  EXPECT_TRUE(babbler.is_refused());
  Outsider lost(a);
  ASSERT_FALSE(lost.greet(shm::kMaxChannels));
  EXPECT_TRUE(lost.is_refused());
  EXPECT_TRUE(a.lost.empty());
}

// They get no slot, and silent connections of the same user exclude no other process.
TEST(ShmStrangers, KeepNobodyOut) {
  End a;
  std::vector<std::unique_ptr<Outsider>> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<Outsider>(a));
    a.transport->progress();
  }
  if (geteuid() == 0) {
    const pid_t child = fork();
    if (child == 0) {
      const bool other = setgid(65534) == 0 && setuid(65534) == 0;
      const auto address = a.transport->address();
      const ConnectAttempt attempt =
          connect_unix({reinterpret_cast<const char*>(address.data()), address.size()});
      std::byte byte;
      pollfd entry{attempt.fd.get(), POLLIN, 0};
      const bool ended = poll(&entry, 1, 3000) == 1 && read(attempt.fd.get(), &byte, 1) == 0;
      _exit(other && ended ? 0 : 1);
    }
    int status = -1;
    ASSERT_TRUE(together({&a}, [&] { return waitpid(child, &status, WNOHANG) == child; }));
    EXPECT_EQ(status, 0);
  }
  End b;
  connect(b, a);
}

// Another process of this user, which claims to be `peer`. Its status is 0 if its connection to
// `target` ends without an answer.
class Impostor {
 public:
  Impostor(End& target, ContextId peer, bool exports) : target_(target) {
    const auto address = target.transport->address();
    child_ = fork();
    if (child_ != 0) return;
    // The child makes its own descriptors, since those of the parent are closed in it.
    const Fd socket =
        connect_unix({reinterpret_cast<const char*>(address.data()), address.size()}).fd;
    const Doorbell doorbell = std::move(Doorbell::create().value());
    const Fd file = std::move(create_memory("ringdist-test", shm::kSegmentBytes).value());
    const Error error =
        exports ? shm::send_export_hello(socket, peer, target.id, 0)
                : shm::send_hello(socket, peer, target.id, 0, file, doorbell.write_end());
    std::byte byte;
    pollfd entry{socket.get(), POLLIN, 0};
    const bool ends =
        !error && poll(&entry, 1, 3000) == 1 && recv(socket.get(), &byte, 1, MSG_DONTWAIT) <= 0;
    _exit(ends ? 0 : 1);
  }
  bool has_ended() { return waitpid(child_, &status_, WNOHANG) == child_; }
  bool is_refused() {
    EXPECT_TRUE(together({&target_}, [this] { return has_ended(); }));
    return status_ == 0;
  }

 private:
  End& target_;
  pid_t child_ = -1;
  int status_ = -1;
};

TEST(ShmStrangers, OfAnotherPidSpeakForNoPeer) {
  End a;
  End b;
  connect(b, a);
  EXPECT_TRUE(Impostor(a, b.id, /*exports=*/false).is_refused());
  EXPECT_TRUE(Impostor(a, b.id, /*exports=*/true).is_refused());
  EXPECT_TRUE(a.lost.empty()) << "nothing has happened to the peer";
  b.send(a, numbered(10, 1));
  EXPECT_TRUE(together({&a, &b}, [&] { return a.got.size() == 1; }));
}

// Until a process has the address of a peer, it cannot compare the pid, and reads nothing.
TEST(ShmStrangers, NobodyIsReadBeforeTheAddressIsKnown) {
  End a;
  End b;
  b.knows(a);
  Impostor impostor(a, b.id, /*exports=*/false);
  b.send(a, numbered(10, 1));
  const TimePoint until = Clock::now() + std::chrono::milliseconds(300);
  EXPECT_TRUE(together({&a, &b}, [&] { return Clock::now() > until; }));
  EXPECT_TRUE(a.got.empty() && a.lost.empty() && !impostor.has_ended());
  while (a.transport->progress() || !a.transport->arm()) {
  }
  a.knows(b);
  EXPECT_TRUE(readable(*a.transport, 5000)) << "asleep, though there is a hello";
  EXPECT_TRUE(together({&a, &b}, [&] { return a.got.size() == 1; }));
  EXPECT_TRUE(impostor.is_refused());
  EXPECT_TRUE(a.lost.empty());
}

// For example a regular file, which cannot be waited for.
TEST(ShmStrangers, WhatIsNoDoorbellIsRefused) {
  End a;
  Outsider outsider(a);
  ASSERT_FALSE(outsider.greet_without_doorbell());
  EXPECT_TRUE(outsider.is_refused());
  EXPECT_TRUE(a.lost.empty());
}

TEST(ShmStrangers, AMessageOutsideTheirMemoryEndsTheLink) {
  struct Wrong {
    uint32_t header;
    uint32_t payload;
    uint64_t at;
    uint64_t published = 1;
  };
  for (const Wrong& wrong :
       {Wrong{4, 100, shm::kSegmentBytes - 99}, Wrong{4, 1, UINT64_MAX}, Wrong{4, 1000, 0},
        Wrong{shm::kSlotRoom + 1, 0, 0}, Wrong{4, UINT32_MAX, shm::kChunksAt},
        Wrong{shm::kExported | 4, 8, shm::export_address(1, 0)}, Wrong{4, 0, 0, shm::kSlots + 1}}) {
    End a;
    Outsider outsider(a);
    ASSERT_FALSE(outsider.greet(0));
    outsider.ring().slots[0].header = wrong.header;
    outsider.ring().slots[0].payload_size = wrong.payload;
    outsider.ring().slots[0].payload_at = wrong.at;
    outsider.ring().published.value.store(wrong.published);
    EXPECT_TRUE(together({&a}, [&] { return !a.lost.empty(); }));
    EXPECT_FALSE(outsider.is_read());
    EXPECT_TRUE(a.got.empty());
    ASSERT_EQ(a.lost.size(), 1u);
    EXPECT_EQ(a.lost[0].first, outsider.id());
    EXPECT_EQ(a.lost[0].second.kind(), ErrorKind::kProtocol);
  }
}

TEST(ShmStrangers, AnInvalidExportEndsTheLink) {
  using shm::ExportMessageType;
  for (const shm::ExportMessage& wrong :
       {shm::ExportMessage{.word = ExportMessageType::kTaken, .export_id = 1},
        shm::ExportMessage{.word = ExportMessageType{9}, .export_id = 1},
        shm::ExportMessage{.word = ExportMessageType::kExport, .export_id = 1 << 16},
        shm::ExportMessage{.magic = 1, .word = ExportMessageType::kExport, .export_id = 1}}) {
    End a;
    Outsider outsider(a);
    outsider.become_lender();
    ASSERT_TRUE(outsider.export_block(wrong, nullptr));
    EXPECT_TRUE(outsider.exports_are_refused());
    ASSERT_EQ(a.lost.size(), 1u);
    EXPECT_EQ(a.lost[0].second.kind(), ErrorKind::kProtocol);
  }
}

// The offset lies outside the exported block, or the message exceeds its end.
TEST(ShmStrangers, AMessageOutsideAnExportEndsTheLink) {
  for (const uint64_t offset :
       {uint64_t{4090}, uint64_t{4097}, shm::offset_in_export(UINT64_MAX)}) {
    End a;
    Outsider outsider(a);
    outsider.become_lender();
    ASSERT_TRUE(outsider.export_block(
        {.word = shm::ExportMessageType::kExport, .export_id = 7, .bytes = 4096},
        &outsider.file()));
    const auto say = [&](uint64_t at, int number) {
      shm::Slot& slot = outsider.ring().slots[number];
      slot.header = shm::kExported | sizeof(int);
      slot.payload_size = 8;
      slot.payload_at = shm::export_address(7, at);
      outsider.ring().published.value.store(number + 1);
    };
    ASSERT_EQ(outsider.answer(), shm::ExportMessageType::kTaken);
    say(0, 0);
    ASSERT_TRUE(together({&a}, [&] { return a.got.size() == 1; }));
    say(offset, 1);
    EXPECT_TRUE(outsider.exports_are_refused());
    EXPECT_EQ(a.got.size(), 1u);
    ASSERT_EQ(a.lost.size(), 1u);
  }
}

TEST(ShmStrangers, ABlockThatMayShrinkIsNotMapped) {
  End a;
  Outsider outsider(a);
  outsider.become_lender();
  const Fd file = Fd::open([] { return memfd_create("ringdist-test", MFD_CLOEXEC); });
  ASSERT_EQ(ftruncate(file.get(), 4096), 0);
  ASSERT_TRUE(outsider.export_block(
      {.word = shm::ExportMessageType::kExport, .export_id = 7, .bytes = 4096}, &file));
  EXPECT_EQ(outsider.answer(), shm::ExportMessageType::kRefused);
  EXPECT_TRUE(a.lost.empty());
}

// A peer may open one export connection, and only for its own ring and after its greeting.
TEST(ShmStrangers, ExportsForUnknownLinksAreRefused) {
  End a;
  Outsider outsider(a);
  ASSERT_FALSE(outsider.open_exports(outsider.id(), 0));
  EXPECT_TRUE(outsider.exports_are_refused()) << "it has no link";
  outsider.become_lender();
  Outsider another(a);
  ASSERT_FALSE(another.open_exports(outsider.id(), 1));
  EXPECT_TRUE(another.exports_are_refused()) << "the peer's other ring";
  ASSERT_FALSE(another.open_exports(another.id(), 0));
  EXPECT_TRUE(another.exports_are_refused()) << "a stranger's";
  ASSERT_FALSE(another.open_exports(outsider.id(), 0));
  EXPECT_TRUE(another.exports_are_refused()) << "a second one";
  EXPECT_TRUE(a.lost.empty());
  ASSERT_TRUE(outsider.export_block(
      {.word = shm::ExportMessageType::kExport, .export_id = 7, .bytes = 4096}, &outsider.file()));
  EXPECT_EQ(outsider.answer(), shm::ExportMessageType::kTaken);
}

// Messages refer to an exported block until they have been read, also after the connection has
// closed.
TEST(ShmStrangers, ExportsOutliveTheirConnection) {
  End a;
  Outsider outsider(a);
  outsider.become_lender();
  ASSERT_TRUE(outsider.export_block(
      {.word = shm::ExportMessageType::kExport, .export_id = 7, .bytes = 4096}, &outsider.file()));
  ASSERT_EQ(outsider.answer(), shm::ExportMessageType::kTaken);
  const auto say = [&](uint32_t exported, int number) {
    shm::Slot& slot = outsider.ring().slots[number];
    slot.header = shm::kExported | sizeof(int);
    slot.payload_size = 8;
    slot.payload_at = shm::export_address(exported, 0);
    outsider.ring().published.value.store(number + 1);
  };
  outsider.hang_up_exports();
  a.transport->progress();
  say(7, 0);
  ASSERT_TRUE(together({&a}, [&] { return a.got.size() == 1; }));
  ASSERT_FALSE(outsider.open_exports(outsider.id(), 0));
  ASSERT_TRUE(outsider.export_block(
      {.word = shm::ExportMessageType::kExport, .export_id = 8, .bytes = 4096}, &outsider.file()));
  ASSERT_EQ(outsider.answer(), shm::ExportMessageType::kTaken);
  say(8, 1);
  ASSERT_TRUE(together({&a}, [&] { return a.got.size() == 2; }));
  EXPECT_TRUE(a.lost.empty());
  say(7, 2);
  ASSERT_TRUE(together({&a}, [&] { return !a.lost.empty(); })) << "nothing was left to read in it";
  EXPECT_EQ(a.got.size(), 2u);
}

}  // namespace
}  // namespace ringdist::test
