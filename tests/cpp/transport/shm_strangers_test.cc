// Who connects to transport `shm` without belonging there, or says what is not true.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "os/socket.h"
#include "transport/shm/hello.h"
#include "transport/shm/layout.h"
#include "transport/shm/loan_note.h"
#include "transport/shm_fixture.h"

namespace ringdist::test {
namespace {

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
  bool lend(const shm::LoanNote& note, const Fd* file) {
    return shm::send_note(socket_, note, file);
  }
  const Fd& file() const { return file_; }
  shm::Ring& ring() { return reinterpret_cast<shm::Segment*>(mapping_.data())->rings[0]; }
  // So many answers: the first is the greeting's.
  bool has_heard(int answers) {
    std::array<std::byte, sizeof(shm::LoanNote)> word;
    while (heard_ < answers) {
      if (heard_ == 0) {
        std::array<std::byte, sizeof(shm::Hello)> greeting;
        if (recv(socket_.get(), greeting.data(), greeting.size(), MSG_DONTWAIT) <= 0) return false;
      } else {
        if (recv(socket_.get(), word.data(), word.size(), MSG_DONTWAIT) <= 0) return false;
        std::memcpy(&last_, word.data(), word.size());
      }
      ++heard_;
    }
    return true;
  }
  shm::LoanWord last_word() const { return last_.word; }
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
  int heard_ = 0;
  shm::LoanNote last_{};
  EventFd bell_ = std::move(EventFd::create().value());
};

TEST(ShmStrangers, AreRefused) {
  End a;
  Stranger babbler(a);
  babbler.say("GET / HTTP/1.1\r\n");
  EXPECT_TRUE(babbler.is_refused());
  Stranger lost(a);
  ASSERT_FALSE(lost.greet(shm::kMaxLinks));
  EXPECT_TRUE(lost.is_refused());
  EXPECT_TRUE(a.lost.empty());
}

// They get no slot, and those of our own user who say nothing keep nobody out.
TEST(ShmStrangers, KeepNobodyOut) {
  End a;
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<Stranger>(a));
    a.transport->progress();
  }
  if (geteuid() == 0) {
    const pid_t child = fork();
    if (child == 0) {
      const bool other = setgid(65534) == 0 && setuid(65534) == 0;
      const auto address = a.transport->address();
      const Connecting attempt =
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
        Wrong{shm::kLent | 4, 8, shm::place_in_loan(1, 0)}, Wrong{4, 0, 0, shm::kSlots + 1}}) {
    End a;
    Stranger stranger(a);
    ASSERT_FALSE(stranger.greet(0));
    stranger.ring().slots[0].header = wrong.header;
    stranger.ring().slots[0].payload_size = wrong.payload;
    stranger.ring().slots[0].payload_at = wrong.at;
    stranger.ring().published.value.show(wrong.published);
    EXPECT_TRUE(stranger.is_refused());
    EXPECT_TRUE(a.got.empty());
    ASSERT_EQ(a.lost.size(), 1u);
    EXPECT_EQ(a.lost[0].first, stranger.id());
    EXPECT_EQ(a.lost[0].second.kind(), ErrorKind::kProtocol);
  }
}

TEST(ShmStrangers, ALoanThatMakesNoSenseEndsTheLink) {
  using shm::LoanWord;
  for (const shm::LoanNote& wrong :
       {shm::LoanNote{.word = LoanWord::kTaken, .loan = 1},
        shm::LoanNote{.word = LoanWord{9}, .loan = 1},
        shm::LoanNote{.word = LoanWord::kLend, .loan = 1 << 16},
        shm::LoanNote{.magic = 1, .word = LoanWord::kLend, .loan = 1}}) {
    End a;
    Stranger stranger(a);
    ASSERT_FALSE(stranger.greet(0));
    ASSERT_TRUE(stranger.lend(wrong, nullptr));
    EXPECT_TRUE(stranger.is_refused());
    ASSERT_EQ(a.lost.size(), 1u);
    EXPECT_EQ(a.lost[0].second.kind(), ErrorKind::kProtocol);
  }
}

// A block that is smaller than its message says, or of which a message names what is outside.
TEST(ShmStrangers, AMessageOutsideALoanEndsTheLink) {
  for (const uint64_t offset : {uint64_t{4090}, uint64_t{4097}, shm::offset_in_loan(UINT64_MAX)}) {
    End a;
    Stranger stranger(a);
    ASSERT_FALSE(stranger.greet(0));
    ASSERT_TRUE(
        stranger.lend({.word = shm::LoanWord::kLend, .loan = 7, .bytes = 4096}, &stranger.file()));
    const auto say = [&](uint64_t at, int number) {
      shm::Slot& slot = stranger.ring().slots[number];
      slot.header = shm::kLent | sizeof(int);
      slot.payload_size = 8;
      slot.payload_at = shm::place_in_loan(7, at);
      stranger.ring().published.value.show(number + 1);
    };
    ASSERT_TRUE(together({&a}, [&] { return stranger.has_heard(2); }));
    say(0, 0);
    ASSERT_TRUE(together({&a}, [&] { return a.got.size() == 1; }));
    say(offset, 1);
    EXPECT_TRUE(stranger.is_refused());
    EXPECT_EQ(a.got.size(), 1u);
    ASSERT_EQ(a.lost.size(), 1u);
  }
}

TEST(ShmStrangers, ABlockThatMayShrinkIsNotMapped) {
  End a;
  Stranger stranger(a);
  ASSERT_FALSE(stranger.greet(0));
  const Fd file = Fd::open([] { return memfd_create("ringdist-test", MFD_CLOEXEC); });
  ASSERT_EQ(ftruncate(file.get(), 4096), 0);
  ASSERT_TRUE(stranger.lend({.word = shm::LoanWord::kLend, .loan = 7, .bytes = 4096}, &file));
  ASSERT_TRUE(together({&a}, [&] { return stranger.has_heard(2); }));
  EXPECT_EQ(stranger.last_word(), shm::LoanWord::kRefused);
  EXPECT_TRUE(a.lost.empty());
}

}  // namespace
}  // namespace ringdist::test
