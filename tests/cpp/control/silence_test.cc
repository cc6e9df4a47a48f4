// What others say of a process that they do not hear: whoever hears it knows better.
#include <sys/socket.h>

#include <thread>
#include <utility>

#include "control/connection.h"
#include "control/fixture.h"
#include "control/wire.h"
#include "os/socket.h"

namespace ringdist::test {
namespace {

constexpr uint64_t kTeller = 98;

// A process of that node's host, which says what it is told to.
class Teller {
 public:
  explicit Teller(const Node& node) : fd_(connect_unix(node.control->unix_name()).fd) {
    say(Hello{kTeller, node.id, 0}.frame());
  }
  void say_silent(uint64_t id) { say(Fate{id, "silent", /*silent=*/true}.frame(FrameType::kLost)); }
  void say_dead(uint64_t id) { say(Fate{id, "killed"}.frame(FrameType::kLost)); }

 private:
  void say(const std::vector<std::byte>& frame) {
    EXPECT_EQ(send(fd_.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(frame.size()));
  }

  const Fd fd_;
};

TEST(ControlSilence, IsNotBelievedOfWhoIsHeard) {
  Nodes nodes = make_nodes(2);
  connect_all(nodes, 5, members_of(nodes, {0, 0}));
  Node& node = *nodes[0];
  const uint64_t other = nodes[1]->id;
  Teller teller(node);
  teller.say_silent(other);
  teller.say_silent(node.id);  // the other one hears us, for all we know
  teller.say_silent(12345);    // nobody knows better
  EXPECT_TRUE(node.events.waits_for_lost(12345, kSoon));
  EXPECT_EQ(node.events.lost_count(), 1u);
  teller.say_dead(other);
  EXPECT_TRUE(node.events.waits_for_lost(other, kSoon)) << "a kernel's word is one";
  teller.say_silent(node.id);
  EXPECT_TRUE(node.events.waits_for_lost(node.id, kSoon)) << "there is nobody else to hear us";
}

TEST(ControlSilence, IsBelievedOfWhoIsNotHeardEither) {
  Nodes nodes = make_nodes(2, /*peer_timeout=*/1000);
  connect_all(nodes, 5, members_of(nodes, {0, 1}));
  nodes[1]->control->stop();  // no heartbeats follow, and its links are gone
  std::this_thread::sleep_for(milliseconds(100));
  Teller teller(*nodes[0]);
  teller.say_silent(nodes[1]->id);
  EXPECT_TRUE(nodes[0]->events.waits_for_lost(nodes[1]->id, kSoon));
}

}  // namespace
}  // namespace ringdist::test
