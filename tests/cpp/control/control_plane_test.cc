// Events that reach a control plane in one iteration of its thread.
#include "control/control_plane.h"

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "control/stepped_plane.h"

namespace ringdist::test {
namespace {

constexpr uint64_t kOldGroup = 5;

// Processes 1 and 2 on one host.
class PlaneTest : public testing::Test {
 protected:
  using Answer = std::shared_ptr<std::promise<Error>>;

  ControlRequest request(ControlRequest::Kind kind, uint64_t id, const Answer& answer) const {
    return {kind, id, &deadline_, answer};
  }
  // Runs an iteration of both planes. The first one executes the command.
  void turn_both(const std::function<void()>& command = nullptr) {
    now_ += Milliseconds(2);
    turn(first_, now_, command);
    turn(second_, now_);
  }
  void pass(Duration time) {
    for (const TimePoint end = now_ + time; now_ < end;) turn_both();
  }
  // Runs iterations until the answer arrives. Returns an error if it does not.
  Error await(const Answer& answer) {
    auto coming = answer->get_future();
    for (int i = 0; i < 2000; ++i) {
      turn_both();
      if (coming.wait_for(std::chrono::microseconds(100)) == std::future_status::ready)
        return coming.get();
    }
    return Error(ErrorKind::kTimeout, "no answer: " + first_.plane.report());
  }
  Error connect() {
    const std::vector members{first_.member(0, 0), second_.member(1, 0)};
    const Answer one = std::make_shared<std::promise<Error>>();
    const Answer other = std::make_shared<std::promise<Error>>();
    first_.plane.connect(request(ControlRequest::Kind::kGroup, kOldGroup, one), 0, members);
    second_.plane.connect(request(ControlRequest::Kind::kGroup, kOldGroup, other), 1, members);
    const Error error = await(one);
    return error ? error : await(other);
  }

  TimePoint now_ = Clock::now();
  CancellableDeadline deadline_{now_ + std::chrono::hours(1)};
  SteppedPlane first_{1};
  SteppedPlane second_{2};
};

// The end of the old group closes its connection and discards the state about the other process.
// The proof for the new group needs a connection of its own.
TEST_F(PlaneTest, AProofOutlivesTheEndOfAnotherGroup) {
  Error error = connect();
  ASSERT_FALSE(error) << error.what();
  pass(std::chrono::seconds(1));  // each side reports that it needs the connection
  second_.plane.disconnect(kOldGroup, 1);
  pass(std::chrono::seconds(1));
  const Answer proof = std::make_shared<std::promise<Error>>();
  turn_both([&] {
    first_.plane.prove(request(ControlRequest::Kind::kProof, second_.id, proof),
                       second_.plane.unix_name());
    first_.plane.disconnect(kOldGroup, 0);
  });
  error = await(proof);
  EXPECT_FALSE(error) << error.what();
}

// Until the new group has its links, no other connection would report the death of the process.
TEST_F(PlaneTest, WhatIsProvenStaysUntilTheNewGroupConnects) {
  Error error = connect();
  ASSERT_FALSE(error) << error.what();
  pass(std::chrono::seconds(1));
  const Answer proof = std::make_shared<std::promise<Error>>();
  first_.plane.prove(request(ControlRequest::Kind::kProof, second_.id, proof),
                     second_.plane.unix_name());
  error = await(proof);
  ASSERT_FALSE(error) << error.what();
  second_.plane.disconnect(kOldGroup, 1);
  first_.plane.disconnect(kOldGroup, 0);
  pass(std::chrono::seconds(1));
  EXPECT_NE(first_.plane.report().find("local open"), std::string::npos) << first_.plane.report();
  error = connect();
  ASSERT_FALSE(error) << error.what();
  first_.plane.disconnect(kOldGroup, 0);
  second_.plane.disconnect(kOldGroup, 1);
  pass(std::chrono::seconds(1));
  EXPECT_EQ(first_.plane.report().find("local open"), std::string::npos) << "nobody needs it";
}

// Only the process that requested the proof watches the other one, and learns of its end.
TEST_F(PlaneTest, AProofReportsTheEndToOneSide) {
  const Answer proof = std::make_shared<std::promise<Error>>();
  first_.plane.prove(request(ControlRequest::Kind::kProof, second_.id, proof),
                     second_.plane.unix_name());
  const Error error = await(proof);
  ASSERT_FALSE(error) << error.what();
  EXPECT_NE(first_.plane.report().find("local held"), std::string::npos) << first_.plane.report();
  EXPECT_EQ(second_.plane.report().find("local"), std::string::npos) << second_.plane.report();
  second_.plane.leave(/*process_ends=*/false, std::make_shared<std::promise<Error>>());
  pass(Milliseconds(100));
  EXPECT_EQ(first_.told.left_times(second_.id), 1) << first_.plane.report();
}

// Processes 1, 2 and 3 on one host, and 4 on another. Process 4 is linked to 1 and 2.
class EndOfAHostTest : public testing::Test {
 protected:
  EndOfAHostTest() {
    std::vector<ControlMember> members;
    for (size_t i = 0; i < 4; ++i) {
      planes_.push_back(std::make_unique<SteppedPlane>(i + 1));
      members.push_back(planes_[i]->member(static_cast<int>(i), i < 3 ? 0 : 1));
    }
    std::vector<std::future<Error>> connected;
    for (size_t i = 0; i < 4; ++i) {
      const auto answer = std::make_shared<std::promise<Error>>();
      connected.push_back(answer->get_future());
      planes_[i]->plane.connect({ControlRequest::Kind::kGroup, kOldGroup, &deadline_, answer},
                                static_cast<int>(i), members);
    }
    pass(std::chrono::seconds(1));
    for (auto& one : connected) {
      const bool there = one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      EXPECT_TRUE(there && !one.get());
    }
  }

  void leave(uint64_t id) {
    planes_[id - 1]->plane.flood({std::byte(id)});  // last flood before it leaves
    planes_[id - 1]->plane.leave(/*process_ends=*/true, std::make_shared<std::promise<Error>>());
  }
  // Closes the process's connections, as the kernel does when a process ends.
  void end(uint64_t id) { planes_[id - 1].reset(); }
  void pass(Duration time) {
    for (const TimePoint until = now_ + time; now_ < until;) {
      now_ += Milliseconds(2);
      for (auto& one : planes_)
        if (one) turn(*one, now_);
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // the connections are real
    }
  }
  // The departures must be detected soon. Data connections break at the same time, and a break
  // without a detected departure ends the group.
  void expect_all_have_left() {
    pass(Milliseconds(20));
    const Told& told = planes_[3]->told;
    for (const uint64_t id : {1, 2, 3}) {
      EXPECT_EQ(told.left_times(id), 1) << id << "\n" << planes_[3]->plane.report();
      EXPECT_EQ(told.lost_times(id), 0) << id;
      EXPECT_EQ(told.flood_times(static_cast<int>(id)), 1) << id;
    }
  }

  TimePoint now_ = Clock::now();
  CancellableDeadline deadline_{now_ + std::chrono::hours(1)};
  std::vector<std::unique_ptr<SteppedPlane>> planes_;
};

TEST_F(EndOfAHostTest, AllAtOnce) {
  for (const uint64_t id : {1, 2, 3}) leave(id);
  pass(Milliseconds(300));
  for (const uint64_t id : {1, 2, 3}) end(id);
  expect_all_have_left();
}

TEST_F(EndOfAHostTest, TheOneWithoutALinkFirst) {
  leave(3);
  pass(Milliseconds(2));
  leave(1);
  leave(2);
  pass(Milliseconds(300));
  for (const uint64_t id : {1, 2, 3}) end(id);
  expect_all_have_left();
}

TEST_F(EndOfAHostTest, TheOneWithoutALinkAsTheOthersHaveEnded) {
  leave(1);
  leave(2);
  pass(Milliseconds(10));
  end(1);
  end(2);
  leave(3);
  pass(Milliseconds(300));
  end(3);
  expect_all_have_left();
}

TEST_F(EndOfAHostTest, TheOneWithoutALinkWhileTheOthersEnd) {
  leave(1);
  leave(2);
  pass(Milliseconds(4));
  leave(3);
  pass(Milliseconds(300));
  for (const uint64_t id : {1, 2, 3}) end(id);
  expect_all_have_left();
}

}  // namespace
}  // namespace ringdist::test
