// Service messages between the ranks of a group: any size, in order. Also tests how waiting for
// them affects a group that loses members.
#include "engine/group/service_channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/group/members.h"

namespace ringdist::test {
namespace {

std::vector<std::byte> message_of(size_t bytes, int fill) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(fill));
}

class FakeGroupService final : public GroupService {
 public:
  void begin(GroupServiceDelegate& now) override { post = &now; }
  Error on_service_message(int rank, ConstBytes message) override {
    service_channel.emplace_back(rank, std::vector<std::byte>(message.begin(), message.end()));
    return answer;
  }
  Error tick(TimePoint) override {
    ++ticks;
    return {};
  }
  void end(const Error& why) noexcept override {
    if (!cause) cause = why;
  }
  std::pair<TimePoint, std::string> waiting_for() const override { return {TimePoint::max(), ""}; }
  std::string dump() const override { return "\n   a word"; }

  GroupServiceDelegate* post = nullptr;
  std::vector<std::pair<int, std::vector<std::byte>>> service_channel;
  Error answer;
  int ticks = 0;
  Error cause;
};

// A rank's Group with a service in it.
struct Writer {
  Writer(int rank, int size) : group(host, Member::membership(rank, size, wire), config()) {
    group.begin();
  }
  GroupConfig config() {
    GroupConfig out = Member::config();
    out.service = one;
    return out;
  }
  void pass(Duration time) {
    host.state.now += time;
    group.tick();
  }

  const std::shared_ptr<FakeGroupService> one = std::make_shared<FakeGroupService>();
  FakeGroupDelegate host;
  FakeTransport wire{host.on_sent()};
  Group group;
};

// Delivers the messages of `from` to `to` in an order drawn from the seed.
void deliver(Writer& from, int to_rank, Writer& to, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto& queue = from.wire.sent[Member::context(to_rank)];
  std::shuffle(queue.begin(), queue.end(), random);
  for (; !queue.empty(); queue.pop_front()) {
    MessageHeader header{};
    ASSERT_TRUE(parse_header(queue.front().header, header));
    to.group.on_message(Member::context(from.group.rank()), header, queue.front().payload);
  }
}

TEST(ServiceChannel, ArriveWholeAndInOrderThoughTheirPartsDoNot) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Writer a(0, 3), b(1, 3);
    std::vector<std::vector<std::byte>> sent;
    for (const size_t bytes : {0u, 1u, 16384u, 16385u, 100000u, 5u})
      sent.push_back(message_of(bytes, static_cast<int>(bytes % 251)));
    for (const auto& message : sent) a.one->post->send_service_message(1, message);
    deliver(a, 1, b, seed);
    ASSERT_EQ(b.one->service_channel.size(), sent.size()) << "seed " << seed;
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(b.one->service_channel[i].first, 0);
      EXPECT_EQ(b.one->service_channel[i].second, sent[i]);
    }
    EXPECT_EQ(a.host.state.completions.out(), 0u) << "their memory is held";
  }
}

TEST(ServiceChannel, ThatMakeNoSenseEndTheGroup) {
  Writer a(0, 2), b(1, 2);
  b.one->answer = Error(ErrorKind::kProtocol, "gibberish");
  a.one->post->send_service_message(1, message_of(3, 1));
  deliver(a, 1, b, 1);
  EXPECT_EQ(b.group.failure().message(), "gibberish");
  EXPECT_EQ(b.one->cause.message(), "gibberish");
  EXPECT_EQ(b.host.count(NoticeKind::kAbort), 1);
  b.one->post->send_service_message(0, message_of(3, 1));
  EXPECT_TRUE(b.wire.sent[Member::context(0)].empty()) << "it has ended";
}

// Parts are kept until those before them have come, so their number is limited.
TEST(ServiceChannel, PartsOutOfRangeEndTheGroup) {
  for (const auto& [number, bytes] : {std::pair(0, 1), std::pair(5000, 1), std::pair(2, 20000)}) {
    Writer a(0, 2), b(1, 2);
    a.one->post->send_service_message(1, message_of(3, 1));
    deliver(a, 1, b, 1);
    MessageHeader header{};
    header.type = MessageType::kService;
    header.op = static_cast<uint64_t>(number);
    b.group.on_message(Member::context(0), header, message_of(static_cast<size_t>(bytes), 1));
    EXPECT_EQ(b.group.failure().kind(), ErrorKind::kProtocol) << number;
    EXPECT_EQ(b.group.failure().ranks(), std::vector{0});
  }
}

TEST(ServiceChannel, AMessageWithoutEndEndsTheGroup) {
  Writer a(0, 2), b(1, 2);
  const std::vector<std::byte> part = message_of(16 * 1024, 1);
  MessageHeader header{};
  header.type = MessageType::kService;
  for (; header.op < 4096; ++header.op) b.group.on_message(Member::context(0), header, part);
  EXPECT_FALSE(b.group.failure());
  b.group.on_message(Member::context(0), header, part);
  EXPECT_EQ(b.group.failure().kind(), ErrorKind::kProtocol);
}

TEST(ServiceChannel, ToAGroupThatHasNoneEndIt) {
  Writer a(0, 2);
  Member b(1, 2);
  a.one->post->send_service_message(1, message_of(3, 1));
  MessageHeader header{};
  ASSERT_TRUE(parse_header(a.wire.sent[Member::context(1)].front().header, header));
  b.group.on_message(Member::context(0), header, ConstBytes());
  EXPECT_EQ(b.group.failure().kind(), ErrorKind::kProtocol);
}

TEST(ServiceChannel, NeedNobodyUnlessTheyAreAwaited) {
  Writer a(0, 3);
  EXPECT_TRUE(a.group.idle());
  a.group.process_lost(Member::context(2), kKilled);
  a.pass(LostPeerCheck::kGrace * 2);
  EXPECT_FALSE(a.group.failure());
  EXPECT_EQ(a.one->ticks, 0);
  a.one->post->set_needs_all_members(true);
  ASSERT_TRUE(a.group.failure());
  EXPECT_NE(a.one->cause.message().find("rank 2 (pid 102) is lost"), std::string::npos);
}

TEST(ServiceChannel, ThatAreAwaitedEndWithADeath) {
  Writer a(0, 3);
  a.one->post->set_needs_all_members(true);
  EXPECT_FALSE(a.group.idle());
  a.pass(Milliseconds(100));
  EXPECT_EQ(a.one->ticks, 1);
  a.group.process_lost(Member::context(1), kKilled);
  EXPECT_EQ(a.one->cause.ranks(), std::vector{1});
}

// Messages of the leaving rank may still be on their way for a while.
TEST(ServiceChannel, ThatAreAwaitedEndALittleAfterADeparture) {
  Writer a(0, 3), b(1, 3);
  a.one->post->set_needs_all_members(true);
  b.one->post->send_service_message(0, message_of(3, 1));
  a.group.on_notice(leave_notice(kNonce, 1, 0));
  a.pass(LostPeerCheck::kGrace / 2);
  EXPECT_FALSE(a.group.failure());
  deliver(b, 0, a, 1);
  EXPECT_EQ(a.one->service_channel.size(), 1u);
  a.pass(LostPeerCheck::kGrace);
  EXPECT_EQ(a.one->cause.kind(), ErrorKind::kPeerLost);
  EXPECT_NE(a.one->cause.message().find("rank 1 (pid 101) has left"), std::string::npos);
}

TEST(ServiceChannel, OfAGroupThatNeverFormsEndWithIt) {
  Writer writer(0, 2);
  GroupSlot slot(writer.host, 0, 2, writer.config());
  slot.fail(kKilled, /*tell_others=*/false);
  EXPECT_EQ(writer.one->cause.message(), kKilled.message());
}

TEST(ServiceChannel, AreInTheDump) {
  Writer a(0, 2);
  EXPECT_NE(a.group.dump().find("a word"), std::string::npos);
}

}  // namespace
}  // namespace ringdist::test
