// Connections that break between two processes that both live on.
#include <sys/socket.h>

#include "conformance/transport_fixture.h"

namespace ringdist {
namespace {

// Shuts down all TCP connections of this process and returns their number.
int shut_down_tcp_connections() {
  return for_tcp_connections([](int fd) { return shutdown(fd, SHUT_RDWR) == 0; });
}

// A group that forms anew adds its peers again, although their processes never ended.
TEST_P(TransportConformance, ABrokenConnectionIsReplacedWhenThePeerIsAddedAgain) {
  const auto payload = pattern(60000, 6);
  const ConstBytes laid = lay(payload);
  for (size_t round = 0; round < 4; ++round) {
    size_t sent = 0;
    for (auto [from, to] : {std::pair(&a_, &b_), std::pair(&b_, &a_)}) {
      ASSERT_FALSE(from->transport->add_peer(to->config.context_id, to->transport->address()));
      ASSERT_TRUE(from->transport->reaches(to->config.context_id));
      from->send(to->config.context_id, pattern(8, 1), laid, [&](const Error& error) {
        EXPECT_FALSE(error) << error.what();
        ++sent;
      });
    }
    ASSERT_TRUE(both_until([&] {
      return sent == 2 && a_.inbox.got.size() == round + 1 && b_.inbox.got.size() == round + 1;
    })) << "round "
        << round;
    a_.transport->begin_flush();
    EXPECT_TRUE(both_until([&] { return a_.transport->flushed(); }));
    if (shut_down_tcp_connections() == 0) GTEST_SKIP() << "it has no connections of TCP";
    if (row_.name == "tcp") continue;  // it dials again by itself, and reports nothing
    ASSERT_TRUE(both_until([&] {
      return a_.inbox.lost.size() == round + 1 && b_.inbox.lost.size() == round + 1;
    })) << "round "
        << round;
    EXPECT_FALSE(a_.transport->reaches(b_.config.context_id));
  }
  EXPECT_EQ(a_.inbox.got.back().payload, payload);
}

}  // namespace
}  // namespace ringdist
