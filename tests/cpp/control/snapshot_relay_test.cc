// Snapshots of a job, with fake connections: the ways of searches and answers, and the names of
// processes that do not answer.
#include "control/snapshot_relay.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "control/fake_connection_sender.h"
#include "control/fake_connection_view.h"
#include "os/epoll.h"

namespace ringdist::test {
namespace {

using Ids = std::vector<uint64_t>;

// This process is rank 0 (process 1) of a group on two hosts: processes 1 to 3, and 4 and 5.
class SnapshotRelayTest : public testing::Test, protected ControlDelegate {
 protected:
  void SetUp() override {
    groups_.join(kNonce, kMe, 0, processes_on({0, 0, 0, 1, 1})).formed = true;
  }
  void begin(uint8_t request = kWholeJob) { snapshots_.begin(client_, request, kStart); }
  void search(ControlConnection& from, SnapshotId id, uint8_t request = 0) {
    const auto frame = SnapshotSearch{id, request}.frame();
    snapshots_.on_search(from, {FrameType::kSnapshotSearch, ConstBytes(frame).subspan(5)},
                         Duration(0), now_);
  }
  void answer(SnapshotAnswer what) {
    const auto frame = what.frame();
    snapshots_.on_answer({FrameType::kSnapshotAnswer, ConstBytes(frame).subspan(5)}, kStart);
  }
  // Returns the texts that the client has got, and forgets them.
  std::vector<std::string> texts() {
    std::vector<std::string> out;
    for (const auto& one : sender_.said)
      if (one.type == FrameType::kSnapshot || one.type == FrameType::kSnapshotEnd)
        out.push_back(decode_text(one.body));
    sender_.said.clear();
    return out;
  }

  // The following functions implement ControlDelegate.
  void on_process_lost(uint64_t, const Error&) override {}
  void on_process_left(uint64_t) override {}
  void on_control_failed(const Error&) override {}
  void on_flood(uint64_t, std::span<const std::byte>) override {}
  void on_membership_stream(FramedSocket, const ControlHello&, LinkKind) override {}
  void on_data_socket(Stream, ConstBytes) override {}
  std::string dump() override { return ""; }
  std::string snapshot(uint8_t request) override {
    if (slow_) std::this_thread::sleep_for(Milliseconds(50));
    ++taken_;
    return request == 0 ? "mine" : "mine with " + std::to_string(request);
  }

  uint64_t activity() const override { return activity_; }
  std::string sample_calls(Duration paused) override {
    return "sample " + std::to_string(paused.count());
  }
  void on_calls(uint64_t id, ConstBytes sample, TimePoint asked, TimePoint) override {
    EXPECT_EQ(asked, kStart + std::chrono::seconds(1));
    calls_.emplace_back(id, decode_text(sample));
  }
  void on_calls_complete(TimePoint) override { ++complete_; }

  Result<Epoll> epoll_ = Epoll::create();
  ControlPeerTable processes_{epoll_.value()};
  ControlGroupTable groups_;
  ControlHistory history_;
  FakeConnectionSender sender_;
  SnapshotRelay snapshots_{kMe, sender_, history_, groups_, processes_, *this};
  TimePoint now_ = kStart;
  int taken_ = 0;  // calls of snapshot()
  bool slow_ = false;
  std::vector<std::pair<uint64_t, std::string>> calls_;
  uint64_t activity_ = 0;
  int complete_ = 0;  // calls of on_calls_complete()
  ControlConnection& client_ =
      sender_.add(0, LinkKind::kLocal, ControlConnection::State::kGreeting);
  ControlConnection& two_ = sender_.add(2);
  ControlConnection& three_ = sender_.add(3);
  ControlConnection& four_ = sender_.add(4, LinkKind::kTcp);
};

TEST_F(SnapshotRelayTest, OfOneProcess) {
  begin(0);
  const auto got = texts();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0], "mine");
  EXPECT_NE(got[1].find("\"missing\":[]"), std::string::npos) << got[1];
  EXPECT_EQ(client_.state, ControlConnection::State::kClosing);
  EXPECT_FALSE(snapshots_.waits());
}

TEST_F(SnapshotRelayTest, DetailsAreThereOnRequest) {
  begin(kWithOps);
  EXPECT_EQ(texts()[0], "mine with 2");
  begin(kWholeJob | kWithOps | kWithStatistics | kCalls);
  ASSERT_EQ(sender_.said[0].type, FrameType::kSnapshotSearch);
  EXPECT_EQ(SnapshotSearch::decode(sender_.said[0].body)->request, kWithOps | kWithStatistics);
  sender_.said.clear();
  search(four_, {9, 1}, kWithStatistics);
  EXPECT_EQ(SnapshotAnswer::decode(sender_.said.back().body)->json, "mine with 8");
}

TEST_F(SnapshotRelayTest, AStateThatTakesLongIsReturnedAgain) {
  slow_ = true;
  for (uint64_t number = 1; number <= 3; ++number) search(four_, {9, number});
  EXPECT_EQ(taken_, 1);
  EXPECT_EQ(SnapshotAnswer::decode(sender_.said.back().body)->json, "mine");
  std::this_thread::sleep_for(Milliseconds(150));
  search(four_, {9, 4});
  EXPECT_EQ(taken_, 2);
  search(four_, {9, 5}, kWithStatistics);  // the text that is there lacks them
  search(four_, {9, 6}, kWithOps);
  for (uint64_t number = 7; number <= 9; ++number) search(four_, {9, number}, kWithStatistics);
  EXPECT_EQ(taken_, 4);
  EXPECT_EQ(SnapshotAnswer::decode(sender_.said.back().body)->json,
            "mine with " + std::to_string(kWithOps | kWithStatistics));
}

TEST_F(SnapshotRelayTest, EndsWithTheLastAnswer) {
  (void)sender_.add(77);  // a process that is in no group of this one
  begin();
  EXPECT_EQ(sender_.take(FrameType::kSnapshotSearch), (Ids{2, 3, 4}));
  for (const uint64_t process : {2, 3, 4}) answer({{kMe, 1}, process, "other", {}});
  EXPECT_EQ(texts(), (std::vector<std::string>{"other", "other", "other"}));
  answer({{kMe, 1}, 4, "again", {}});
  answer({{kMe, 9}, 5, "of another snapshot", {}});
  EXPECT_TRUE(texts().empty());
  snapshots_.end_late(kStart + SnapshotRelay::kLimit / 2);
  EXPECT_TRUE(snapshots_.waits());
  answer({{kMe, 1}, 5, "last", {}});
  const auto got = texts();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0], "last");
  EXPECT_NE(got[1].find("\"missing\":[]"), std::string::npos) << got[1];
  EXPECT_FALSE(snapshots_.waits());
}

TEST_F(SnapshotRelayTest, NamesThoseThatDoNotAnswer) {
  history_.record_lost(2, "it was \"killed\"");
  history_.record_left(3);
  begin();
  (void)texts();
  answer({{kMe, 1}, 4, "other", {5}});  // 4 has found 5 stopped, and nobody else is waited for
  const auto got = texts();
  ASSERT_EQ(got.size(), 2u);
  for (
      const char* part :
      {R"("context":"0000000000000002","host":"h0","pid":102,"state":"lost","cause":"it was \"killed\"")",
       R"("context":"0000000000000003","host":"h0","pid":103,"state":"left")",
       R"("context":"0000000000000005","host":"h1","pid":105,"state":"stopped")",
       R"("groups":[{"id":"000000000000004d","rank":4}])"})
    EXPECT_NE(got[1].find(part), std::string::npos) << part << " in " << got[1];
}

TEST_F(SnapshotRelayTest, EndsWhenItIsLate) {
  processes_[4].link(LinkKind::kTcp).connected(kStart - Milliseconds(1500));
  begin();
  (void)texts();
  for (const uint64_t process : {2, 3, 5}) answer({{kMe, 1}, process, "other", {}});
  (void)texts();
  snapshots_.end_late(kStart + SnapshotRelay::kLimit);
  const auto got = texts();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_NE(got[0].find(R"("pid":104,"state":"silent","silent_for":2.1)"), std::string::npos)
      << got[0];
  EXPECT_FALSE(snapshots_.waits());
}

TEST_F(SnapshotRelayTest, AClientThatIsGoneIsForgotten) {
  begin();
  client_.state = ControlConnection::State::kClosed;
  snapshots_.end_late(kStart);
  EXPECT_FALSE(snapshots_.waits());
}

TEST_F(SnapshotRelayTest, ASearchIsPassedOnOnceAndAnsweredTheWayItCame) {
  search(four_, {9, 1});
  search(two_, {9, 1});
  search(four_, {kMe, 1});  // its own
  std::vector<std::pair<uint64_t, FrameType>> sent;
  for (const auto& one : sender_.said) sent.emplace_back(one.to, one.type);
  EXPECT_EQ(sent, (std::vector<std::pair<uint64_t, FrameType>>{{2, FrameType::kSnapshotSearch},
                                                               {3, FrameType::kSnapshotSearch},
                                                               {4, FrameType::kSnapshotAnswer}}));
  sender_.said.clear();
  answer({{9, 1}, 3, "of three", {}});
  ASSERT_EQ(sender_.said.size(), 1u);
  EXPECT_EQ(sender_.said[0].to, 4u);
  EXPECT_EQ(SnapshotAnswer::decode(sender_.said[0].body)->json, "of three");
  four_.state = ControlConnection::State::kClosed;
  answer({{9, 1}, 2, "of two", {}});
  EXPECT_EQ(sender_.said.size(), 1u);
}

// With a limit by number alone, copies of forgotten searches would go round for ever.
TEST_F(SnapshotRelayTest, ManySearchesAreRecognizedAndNewOnesIgnored) {
  for (uint64_t number = 1; number <= 1000; ++number) search(four_, {9, number});
  const size_t sent = sender_.said.size();
  EXPECT_LE(sent, 3u * 256);
  for (uint64_t number = 1; number <= 1000; ++number) search(two_, {9, number});
  EXPECT_EQ(sender_.said.size(), sent);
  now_ += std::chrono::seconds(11);
  search(four_, {9, 2000});
  EXPECT_GT(sender_.said.size(), sent);
}

TEST_F(SnapshotRelayTest, ClientsAreLimited) {
  for (int i = 0; i < 8; ++i) begin();
  ControlConnection& last = sender_.add(0, LinkKind::kLocal, ControlConnection::State::kGreeting);
  const size_t sent = sender_.said.size();
  snapshots_.begin(last, kWholeJob, kStart);
  EXPECT_EQ(sender_.said.size(), sent);
  EXPECT_EQ(last.state, ControlConnection::State::kClosing);
}

TEST_F(SnapshotRelayTest, InsideAHostTheFirstSendsItToAll) {
  search(two_, {9, 1});
  EXPECT_EQ(sender_.take(FrameType::kSnapshotSearch), (Ids{4}));
}

TEST_F(SnapshotRelayTest, OthersThanMembersAreNotAnswered) {
  search(sender_.add(77), {9, 1});
  EXPECT_TRUE(sender_.said.empty());
}

TEST_F(SnapshotRelayTest, FindsProcessesThatAreStopped) {
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  processes_[2].pid = child;
  processes_[3].pid = getpid();
  search(four_, {9, 1});
  const auto sent = SnapshotAnswer::decode(sender_.said.back().body);
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->stopped, (Ids{2}));
}

TEST_F(SnapshotRelayTest, CollectsSamplesOfCallsForItsOwner) {
  using Calls = std::vector<std::pair<uint64_t, std::string>>;
  snapshots_.sample_calls(Duration(6), kStart);
  EXPECT_TRUE(calls_.empty()) << "nothing was called";
  const TimePoint then = kStart + std::chrono::seconds(1);
  activity_ = 1;
  snapshots_.sample_calls(Duration(6), then - Milliseconds(1));
  snapshots_.sample_calls(Duration(7), then);
  activity_ = 2;
  snapshots_.sample_calls(Duration(8), then + std::chrono::seconds(1));  // it waits for answers
  EXPECT_EQ(calls_, (Calls{{kMe, "sample 7"}}));
  EXPECT_EQ(sender_.take(FrameType::kSnapshotSearch), (Ids{2, 3, 4}));
  EXPECT_FALSE(snapshots_.waits()) << "for it no tick is brought forward";
  for (const uint64_t process : {2, 3, 4}) answer({{kMe, 1}, process, "other", {}});
  EXPECT_EQ(calls_.size(), 4u);
  EXPECT_EQ(calls_.back(), (std::pair<uint64_t, std::string>(4, "other")));
  EXPECT_EQ(complete_, 0);
  snapshots_.end_late(then + SnapshotRelay::kLimit);
  EXPECT_EQ(complete_, 1) << "process 5 has not answered";
  answer({{kMe, 1}, 5, "late", {}});
  EXPECT_EQ(calls_.size(), 4u);
}

TEST_F(SnapshotRelayTest, AnswersASearchWithASampleOfCalls) {
  const auto frame = SnapshotSearch{{9, 1}, kCalls}.frame();
  snapshots_.on_search(four_, {FrameType::kSnapshotSearch, ConstBytes(frame).subspan(5)},
                       Duration(3), now_);
  EXPECT_EQ(SnapshotAnswer::decode(sender_.said.back().body)->json, "sample 3");
  EXPECT_EQ(taken_, 0);
}

TEST_F(SnapshotRelayTest, OneProcessComparesCalls) {
  activity_ = 1;
  auto members = processes_on({0, 0, 0, 1, 1, 1});
  std::swap(members[0].rank, members[5].rank);
  groups_.join(kNonce + 1, kMe, 5, members).formed = true;
  snapshots_.sample_calls(Duration(0), kStart + std::chrono::seconds(1));
  EXPECT_TRUE(calls_.empty()) << "another process has rank 0 of the largest group";
}

}  // namespace
}  // namespace ringdist::test
