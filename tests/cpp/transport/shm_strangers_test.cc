// Who connects to transport `shm` without belonging there, or says what is not true.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "os/socket.h"
#include "transport/shm/hello.h"
#include "transport/shm/layout.h"
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
        Wrong{4, 0, 0, shm::kSlots + 1}}) {
    End a;
    Stranger stranger(a);
    ASSERT_FALSE(stranger.greet(0));
    stranger.ring().slots[0].header_size = wrong.header;
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

}  // namespace
}  // namespace ringdist::test
