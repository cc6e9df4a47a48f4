#include "transport/tcp/data_port.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace ringdist {
namespace {

constexpr size_t kFrameHead = 5;  // bytes before the body
constexpr ContextId kSender = 11;
constexpr ContextId kAnother = 12;

// A connection at which TLS has proven a process.
class ProvenConnection final : public TlsConnection {
 public:
  explicit ProvenConnection(uint64_t peer) : peer_(peer) {}
  int handshake(int) override { return 0; }
  ssize_t read(int, Bytes) override { return 0; }
  ssize_t write(int, std::span<const iovec>) override { return 0; }
  bool flush(int) override { return true; }
  bool has_input() const override { return false; }
  bool has_output() const override { return false; }
  void end_output(int) override {}
  uint64_t peer() const override { return peer_; }
  std::string peer_name() const override { return "the certificate of owner 'b' for rank 2"; }
  bool heard() const override { return true; }
  std::string failure() const override { return ""; }

 private:
  const uint64_t peer_;
};

TEST(DataPort, PassesAConnectionOnlyInTheNameThatWasProven) {
  const DataSecret secret{std::byte{7}};
  DataPort port;
  std::vector<ContextId> passed;
  port.add(secret, [&](Stream, const DataHello& hello) { passed.push_back(hello.from); });
  const auto adopt = [&](uint64_t proven, ContextId named, const DataSecret& its) {
    const auto frame = DataHello{named, 1, 1, 0, its}.frame();
    Stream stream(Fd(), std::make_unique<ProvenConnection>(proven));
    port.adopt(std::move(stream), ConstBytes(frame).subspan(kFrameHead));
  };
  testing::internal::CaptureStderr();
  adopt(kSender, kAnother, secret);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("it has the certificate of owner 'b' for rank 2, and names another process"),
            std::string::npos)
      << log;
  adopt(kSender, kSender, DataSecret{});
  EXPECT_TRUE(passed.empty());
  adopt(kSender, kSender, secret);
  EXPECT_EQ(passed, (std::vector<ContextId>{kSender}));
}

}  // namespace
}  // namespace ringdist
