// Transport `shm` with a key of the job. A process gets no descriptor before it has shown that it
// has the key.
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "os/doorbell.h"
#include "os/tls_key.h"
#include "support/test_key.h"
#include "transport/shm/block_exports.h"
#include "transport/shm/key_proof.h"
#include "transport/shm/segment_layout.h"
#include "transport/shm/shm_hello.h"
#include "transport/shm_exporting.h"

namespace ringdist::test {
namespace {

class ShmKey : public testing::Test {
 protected:
  const std::shared_ptr<const TlsKey> key_ = key_of(1);
  End target_{random_id(), key_};
  const ContextId peer_ = random_id();

  // Connects to the target, which has the address of this process as that of `peer_`.
  Fd dial() {
    const std::string name = "@ringdist-shm-" + std::to_string(getpid()) + "-0";
    EXPECT_FALSE(target_.transport->add_peer(peer_, std::as_bytes(std::span(name))));
    const auto address = target_.transport->address();
    return connect_unix({reinterpret_cast<const char*>(address.data()), address.size()}).fd;
  }
  // Returns true if the connection ends, and no descriptor has come.
  bool ends_without_descriptors(const Fd& socket) {
    bool none = true;
    return together({&target_},
                    [&] {
                      std::array<std::byte, 256> bytes;
                      bool empty = false;
                      const auto got = receive_with_fds(socket, bytes, empty);
                      none &= !got.ok() || got.value().fds.empty();
                      return !got.ok() || (!empty && got.value().bytes == 0);
                    }) &&
           none && target_.got.empty() && target_.lost.empty();
  }
};

TEST_F(ShmKey, LetsProcessesTalk) {
  End other(random_id(), key_);
  connect(other, target_);
  connect(target_, other);
  // The first sends are copied, while the connection for exports begins.
  const Tensor tensor(5);
  const uint64_t before = read_in_place();
  const TimePoint until = Clock::now() + kDeadline;
  while (read_in_place() == before && Clock::now() < until) {
    target_.got.clear();
    other.send(target_, tensor.part());
    ASSERT_TRUE(together({&other, &target_}, [&] { return !target_.got.empty(); }));
    EXPECT_EQ(target_.got[0], numbered(kPart, 5));
    look({&other, &target_});
  }
  EXPECT_EQ(read_in_place() - before, kPart);
}

TEST_F(ShmKey, RefusesAnotherKey) {
  End other(random_id(), key_of(2));
  other.knows(target_);
  target_.knows(other);
  other.send(target_, numbered(10, 1));
  EXPECT_TRUE(together({&other, &target_}, [&] { return !other.lost.empty(); }));
  EXPECT_NE(other.lost[0].second.message().find("has not shown that it has the key"),
            std::string::npos)
      << other.lost[0].second.message();
  EXPECT_EQ(other.failed, 1);
  EXPECT_TRUE(target_.got.empty() && target_.lost.empty());
}

TEST_F(ShmKey, RefusesPlainHellos) {
  const Fd file = std::move(create_memory("ringdist-test", shm::kSegmentBytes).value());
  const Doorbell doorbell = std::move(Doorbell::create().value());
  const Fd socket = dial();
  ASSERT_FALSE(shm::send_hello(socket, peer_, target_.id, 0, file, doorbell.write_end()));
  EXPECT_TRUE(ends_without_descriptors(socket));
}

TEST_F(ShmKey, RefusesPlainExportHellos) {
  End other(random_id(), key_);
  connect(other, target_);
  const Fd socket = dial();
  ASSERT_FALSE(shm::send_export_hello(socket, other.id, target_.id, 0));
  EXPECT_TRUE(ends_without_descriptors(socket));
}

// A process that has taken the name of one that has ended gets no block, either.
TEST_F(ShmKey, ExportsNothingToAnImpostor) {
  const std::string name = "@ringdist-shm-test-" + std::to_string(random_id());
  const Fd listener = std::move(listen_unix(name).value());
  shm::ExportConnection exports(name, peer_, target_.id, key_.get());
  EXPECT_FALSE(exports.open(0));
  Fd accepted;
  while (!accepted) accepted = accept_connection(listener);
  ASSERT_EQ(write(accepted.get(), "HTTP/1.1 400", 12), 12);
  (void)exports.receive();
  EXPECT_FALSE(exports.open(0));
  EXPECT_FALSE(exports.is_proving());
}

// The handshake proves one process, and the hello names another.
TEST_F(ShmKey, RefusesTheNameOfAnotherProcess) {
  const Fd socket = dial();
  auto proof = shm::KeyProof::dial(key_.get(), random_id(), target_.id);
  ASSERT_TRUE(together({&target_}, [&] { return proof.advance(socket).value(); }));
  const Fd file = std::move(create_memory("ringdist-test", shm::kSegmentBytes).value());
  const Doorbell doorbell = std::move(Doorbell::create().value());
  ASSERT_FALSE(shm::send_hello(socket, peer_, target_.id, 0, file, doorbell.write_end()));
  EXPECT_TRUE(ends_without_descriptors(socket));
}

}  // namespace
}  // namespace ringdist::test
