// A control plane with certificates. A member connects in the name of another one.
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "control/control_connection.h"
#include "control/control_frames.h"
#include "control/fixture.h"
#include "os/socket.h"
#include "support/test_certificate.h"

namespace ringdist::test {
namespace {

// A line follows its connection's end, and one line a second is logged.
constexpr milliseconds kLogPause(1100);
constexpr std::string_view kOfB = "it has the certificate of owner 'b' for ranks 2, 5";

class ControlCertificates : public testing::Test {
 protected:
  const std::shared_ptr<const TlsKey> b_ = certificate_of("b");

  // Sends frames to a node, in the name of a process, over a connection with the certificate of
  // `b`. Returns true if the node ends it.
  bool is_cut_off(const Node& node, uint64_t proven, const std::vector<std::byte>& frames) const {
    ConnectAttempt attempt = connect_tcp(node.control->tcp_address());
    Stream stream(std::move(attempt.fd), b_->dial(proven, node.id));
    std::array<std::byte, 4096> buffer{};
    bool sent = false;
    for (const TimePoint end = in(kSoon); Clock::now() < end;) {
      const int problem = stream.establish();
      if (problem != 0 && problem != EAGAIN) return true;
      if (problem == 0 && !std::exchange(sent, true)) (void)stream.write(frames);
      const ssize_t got = problem == 0 ? stream.read(buffer) : -1;
      if (got == 0 || (got < 0 && problem == 0 && errno != EAGAIN)) return true;
      pollfd entry{stream.fd().get(), POLLIN, 0};
      (void)poll(&entry, 1, 50);
    }
    return false;
  }
};

TEST_F(ControlCertificates, AMemberIsNotAnother) {
  const auto a = certificate_of("a");
  Nodes nodes;
  for (const auto& key : {certificate_of("any"), a, b_})
    nodes.push_back(std::make_unique<Node>(10, key->draw_id(), key));
  connect_all(nodes, 5, members_of(nodes, {0, 1, 2}));
  Node& target = *nodes[0];
  const uint64_t of_a = nodes[1]->id;
  const auto join = [](std::vector<std::byte> first, const std::vector<std::byte>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  const auto leaves = PeerDeparture{of_a, ""}.frame(FrameType::kLeft);
  const std::vector<std::vector<std::byte>> tries = {
      join(ControlHello{of_a, target.id, 5}.frame(), leaves),
      join(ControlHello{of_a, target.id, 5}.frame(FrameType::kMembershipHello),
           make_frame(FrameType::kMembership, "message")),
      make_frame(FrameType::kDataHello, "hello for data")};
  for (const auto& frames : tries) {
    // The handshake claims to be `a`.
    testing::internal::CaptureStderr();
    EXPECT_TRUE(is_cut_off(target, of_a, frames));
    std::this_thread::sleep_for(kLogPause);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find(std::string(kOfB) + ", which is not that of the process it claims to be"),
              std::string::npos)
        << log;
  }
  // The handshake is right, and the hello names `a`.
  for (size_t i = 0; i < 2; ++i) {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(is_cut_off(target, b_->draw_id(), tries[i]));
    std::this_thread::sleep_for(kLogPause);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find(std::string(kOfB) + ", and names another process"), std::string::npos)
        << log;
  }
  EXPECT_EQ(target.events.left_count(), 0u);
  EXPECT_EQ(target.events.lost_count(), 0u);
  // The group still works.
  nodes[1]->control->flood(to_bytes("notice of a"));
  EXPECT_TRUE(nodes[0]->events.waits_for_floods(1, kSoon));
  EXPECT_TRUE(nodes[2]->events.waits_for_floods(1, kSoon));
}

}  // namespace
}  // namespace ringdist::test
