#include "negotiation/timeline/timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/text_of.h"

namespace ringdist {
namespace {

using std::chrono::microseconds;

class TimelineRank final : public TimelineDelegate {
 public:
  TimelineRank(const Topology& topology, int rank)
      : timeline(*this, topology, rank, "rank " + std::to_string(rank)) {}

  void send_timeline(int rank, std::vector<std::byte> message) override {
    outbox.emplace_back(rank, std::move(message));
  }
  bool record(std::shared_ptr<TraceRecorder> recorder) override {
    if (is_recorded_otherwise) return false;
    recorded_by = std::move(recorder);
    return true;
  }
  void gathered(const Error& error) override {
    ++times_gathered;
    problem = error;
  }
  void discard(std::shared_ptr<void>) noexcept override {}

  bool is_recorded_otherwise = false;
  std::shared_ptr<TraceRecorder> recorded_by;
  int times_gathered = 0;
  Error problem;
  Duration ahead{0};  // offset of its clock
  std::deque<std::pair<int, std::vector<std::byte>>> outbox;
  Timeline timeline;
};

// Ranks with timelines. Each message takes some time.
class TimelineWorld {
 public:
  explicit TimelineWorld(const Topology& topology) {
    for (int rank = 0; rank < static_cast<int>(topology.host_of.size()); ++rank)
      ranks_.push_back(std::make_unique<TimelineRank>(topology, rank));
    folder_ = testing::TempDir() + "/timeline" + std::to_string(getpid()) + "-" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  ~TimelineWorld() { std::filesystem::remove_all(folder_); }

  TimelineRank& operator[](int rank) { return *ranks_[rank]; }
  std::string path() const { return folder_ + "/all.json"; }
  std::string part(int rank) const { return Timeline::part_of(path(), rank); }
  TimePoint now_of(int rank) const { return now_ + ranks_[rank]->ahead; }

  void settle() {
    for (bool any = true; any;) {
      any = false;
      for (int from = 0; from < static_cast<int>(ranks_.size()); ++from)
        while (!ranks_[from]->outbox.empty()) {
          const auto [to, bytes] = std::move(ranks_[from]->outbox.front());
          ranks_[from]->outbox.pop_front();
          now_ += microseconds(100);
          any = true;
          const Error error = ranks_[to]->timeline.receive(from, bytes, now_of(to));
          EXPECT_FALSE(error) << error.what();
        }
    }
  }
  void start() {
    const Error error = ranks_[0]->timeline.start(path(), true, now_of(0));
    ASSERT_FALSE(error) << error.what();
    settle();
  }

 private:
  std::string folder_;
  std::vector<std::unique_ptr<TimelineRank>> ranks_;
  TimePoint now_ = TimePoint() + std::chrono::hours(5);
};

TEST(Timeline, AllRecordFromStartToStop) {
  TimelineWorld ranks(Topology::one_host(3));
  ranks.start();
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(ranks[rank].recorded_by);
    EXPECT_TRUE(ranks[rank].timeline.marks_cycles());
    const TimePoint now = ranks.now_of(rank);
    ranks[rank].recorded_by->add({"row", "by " + std::to_string(rank), "", now, now});
  }
  ranks[0].timeline.stop();
  EXPECT_EQ(ranks[0].times_gathered, 0);
  ranks.settle();
  EXPECT_EQ(ranks[0].times_gathered, 1);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(ranks[rank].recorded_by);
    EXPECT_FALSE(ranks[rank].timeline.is_busy());
    const std::string text = text_of(ranks.part(rank));
    EXPECT_NE(text.find("by " + std::to_string(rank)), std::string::npos) << text;
    EXPECT_EQ(text.find("offset_us"), std::string::npos) << "hosts have one clock";
  }
}

TEST(Timeline, WhatOtherHostsCannotWriteThereIsSent) {
  TimelineWorld ranks(Topology::from_hosts({{0}, {1}}, 2));
  ranks[1].ahead = std::chrono::hours(3);
  // The folder does not exist on that host, so the rank writes elsewhere.
  std::filesystem::create_directory(ranks.part(1));
  std::ofstream(ranks.part(1) + "/x") << "so it is not removed";
  ASSERT_FALSE(ranks[0].timeline.start(ranks.path(), false, ranks.now_of(0)));
  ranks.settle();
  std::filesystem::remove_all(ranks.part(1));
  ASSERT_TRUE(ranks[1].recorded_by);
  const TimePoint now = ranks.now_of(1);
  for (int i = 0; i < 20000; ++i)  // more than one part
    ranks[1].recorded_by->add({"row", "number " + std::to_string(i) + ".", "", now, now});
  ranks[0].timeline.stop();
  ranks.settle();
  EXPECT_EQ(ranks[0].times_gathered, 1);
  EXPECT_FALSE(ranks[0].problem);
  const std::string text = text_of(ranks.part(1));
  EXPECT_NE(text.find("number 0."), std::string::npos);
  EXPECT_NE(text.find("number 19999."), std::string::npos);
  EXPECT_NE(text.find("\"offset_us\":-10800000000.000"), std::string::npos)
      << text.substr(text.size() - 400);
}

TEST(Timeline, ThereIsOneAtATime) {
  TimelineWorld ranks(Topology::one_host(2));
  ranks.start();
  EXPECT_EQ(ranks[0].timeline.start(ranks.path(), false, ranks.now_of(0)).kind(),
            ErrorKind::kInvalidArgument);
  ranks[0].timeline.stop();
  ranks.settle();
  ranks.start();
  EXPECT_TRUE(ranks[1].timeline.is_on());
}

TEST(Timeline, WhoIsRecordedOtherwiseHasNoPartInIt) {
  TimelineWorld ranks(Topology::one_host(2));
  ranks[0].is_recorded_otherwise = true;
  EXPECT_EQ(ranks[0].timeline.start(ranks.path(), false, ranks.now_of(0)).kind(),
            ErrorKind::kInvalidArgument);
  ranks[0].is_recorded_otherwise = false;
  ranks[1].is_recorded_otherwise = true;
  ranks.start();
  EXPECT_FALSE(ranks[1].timeline.is_on());
  ranks[0].timeline.stop();
  ranks.settle();
  EXPECT_EQ(ranks[0].times_gathered, 1);
  EXPECT_FALSE(std::filesystem::exists(ranks.part(1)));
}

TEST(Timeline, WhereItCannotBeWrittenItSaysSo) {
  TimelineWorld ranks(Topology::one_host(2));
  EXPECT_EQ(ranks[0].timeline.start("/no/such/folder/x", false, ranks.now_of(0)).kind(),
            ErrorKind::kSystem);
  EXPECT_FALSE(ranks[0].timeline.is_on());
}

TEST(Timeline, LettersThatMakeNoSenseAreErrors) {
  TimelineWorld ranks(Topology::one_host(3));
  TimelineMessage message;
  EXPECT_TRUE(ranks[0].timeline.receive(1, message.encode(), ranks.now_of(0)));
  EXPECT_TRUE(ranks[1].timeline.receive(2, message.encode(), ranks.now_of(1)));
  message.kind = TimelineMessage::Kind::kPing;
  EXPECT_TRUE(ranks[1].timeline.receive(0, message.encode(), ranks.now_of(1)));
  EXPECT_TRUE(ranks[0].timeline.receive(1, ConstBytes(), ranks.now_of(0)));
  message.kind = TimelineMessage::Kind::kPong;
  EXPECT_FALSE(ranks[1].timeline.receive(0, message.encode(), ranks.now_of(1)));
  EXPECT_FALSE(ranks[1].timeline.is_busy());
}

}  // namespace
}  // namespace ringdist
