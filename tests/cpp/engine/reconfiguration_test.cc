// Groups with members that their callers choose. The ranks are threads with one Context each.
#include "engine/reconfiguration.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/group_sum.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

// Processes without a group, and their state of the last group that formed.
class Reconfigured : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < kProcesses; ++i) {
      CommunicatorOptions options;
      options.name = "test";
      options.timeout = Milliseconds(20000);
      options.config = contexts_.config();
      options.store = contexts_.store();
      each_.push_back(std::make_unique<Reconfiguration>(contexts_.share(i), options));
      handles_.push_back(each_.back()->handle().value());
    }
    groups_.resize(kProcesses);
  }
  void TearDown() override { groups_.clear(); }

  std::vector<std::string> handles_of(const std::vector<int>& processes) const {
    std::vector<std::string> out;
    for (const int one : processes) out.push_back(handles_.at(one));
    return out;
  }

  // Forms a group of these processes, each in a thread. Returns the first error.
  Error form(int64_t uuid, const std::vector<int>& processes, bool ordered = true) {
    std::vector<Error> errors(kProcesses);
    std::vector<std::thread> threads;
    for (const int one : processes)
      threads.emplace_back([&, one] { errors[one] = form_on(one, uuid, processes, ordered); });
    for (auto& thread : threads) thread.join();
    for (const Error& error : errors)
      if (error) return error;
    return {};
  }
  Error form_on(int process, int64_t uuid, const std::vector<int>& processes, bool ordered = true,
                Milliseconds timeout = std::chrono::seconds(20)) {
    const auto attempt = each_[process]->begin({uuid, handles_of(processes), ordered, timeout});
    if (!attempt.ok()) return attempt.error();
    const auto error = attempt.value().wait_for(std::chrono::seconds(60));
    if (!error) return {ErrorKind::kTimeout, "a formation hangs"};
    if (*error) return *error;
    groups_[process] = attempt.value().group;
    return {};
  }
  void expect_sums(const std::vector<int>& processes) {
    std::vector<std::thread> threads;
    for (const int one : processes)
      threads.emplace_back([&, one] {
        const auto sum = sum_of_ones(*groups_[one]);
        ASSERT_TRUE(sum.ok()) << sum.error().what();
        EXPECT_EQ(sum.value(), static_cast<float>(processes.size()));
      });
    for (auto& thread : threads) thread.join();
  }

  static constexpr int kProcesses = 4;
  Ranks contexts_{of_size(kProcesses)};
  std::vector<std::unique_ptr<Reconfiguration>> each_;
  std::vector<std::string> handles_;
  std::vector<std::shared_ptr<Communicator>> groups_;
};

TEST_F(Reconfigured, MembersAreExcludedAndComeBack) {
  ASSERT_FALSE(form(1, {0, 1, 2, 3}));
  expect_sums({0, 1, 2, 3});
  ASSERT_FALSE(form(2, {3, 1}));
  EXPECT_EQ(groups_[3]->rank(), 0) << "in the order of the handles";
  EXPECT_EQ(groups_[1]->rank(), 1);
  EXPECT_EQ(groups_[1]->sequence_number(), 0u);
  expect_sums({3, 1});
  ASSERT_FALSE(form(3, {2}));
  expect_sums({2});
  ASSERT_FALSE(form(4, {2, 0, 1, 3}));
  expect_sums({2, 0, 1, 3});
}

TEST_F(Reconfigured, ASetIsSorted) {
  ASSERT_FALSE(form(1, {2, 0, 1}, /*ordered=*/false));
  expect_sums({0, 1, 2});
  auto sorted = handles_of({0, 1, 2});
  std::ranges::sort(sorted);
  for (const int one : {0, 1, 2}) EXPECT_EQ(sorted[groups_[one]->rank()], handles_[one]);
}

// A refused request leaves the previous group unchanged.
TEST_F(Reconfigured, BadRequestsAreRefusedBeforeAnythingIsSent) {
  ASSERT_FALSE(form(1, {0, 1}));
  const auto refused = [&](Reconfiguration::Request request) {
    if (request.timeout.count() == 0) request.timeout = Milliseconds(1000);
    const auto attempt = each_[0]->begin(request);
    EXPECT_FALSE(attempt.ok());
    return attempt.ok() ? std::string() : attempt.error().message();
  };
  const auto says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(refused({1, handles_of({0, 1})}), "uuid: 1 was already used");
  says(refused({2, handles_of({1, 2})}), "this process' own is not among the 2");
  says(refused({2, handles_of({0, 1, 1})}), "handles: 2 of 3: that of pid ");
  says(refused({2, {}}), "own is not among the 0");
  auto garbled = handles_of({0, 1});
  garbled[1] = "a foreign handle";
  says(refused({2, garbled}), "handles: 1 of 2: 'a foreign handle' is no handle");
  garbled[1] = handles_[1].substr(0, handles_[1].size() - 2);
  says(refused({2, garbled}), "is no handle of a ringdist group");
  expect_sums({0, 1});
  ASSERT_FALSE(form(2, {0, 1})) << "what was refused has not used the uuid";
  expect_sums({0, 1});
}

TEST_F(Reconfigured, AHandleOfAnotherVersionIsNamed) {
  auto other = ProcessHandle::decode(handles_[1]).value();
  other.entry.wire_version += 1;
  const auto read = ProcessHandle::decode(other.encode());
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().kind(), ErrorKind::kMismatch);
  EXPECT_NE(read.error().message().find("wire version"), std::string::npos);
}

TEST_F(Reconfigured, OneThatDoesNotComeIsWaitedForUntilTheTimeout) {
  ASSERT_FALSE(form(1, {0, 1}));
  const Error error = form_on(0, 2, {0, 1, 2}, /*ordered=*/true, Milliseconds(300));
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::kTimeout) << error.what();
  expect_sums({0, 1});
}

// One process arrives after the others have abandoned the attempt. Its members must keep their
// group, too.
TEST_F(Reconfigured, OneThatComesTooLate) {
  ASSERT_FALSE(form(1, {0, 1}));
  expect_sums({0, 1});
  EXPECT_TRUE(form_on(0, 2, {0, 1}, /*ordered=*/true, Milliseconds(300)));
  const Error late = form_on(1, 2, {0, 1}, /*ordered=*/true, Milliseconds(3000));
  ASSERT_TRUE(late);
  EXPECT_NE(late.message().find("rank 0 ended the group"), std::string::npos) << late.what();
  expect_sums({0, 1});
  ASSERT_FALSE(form(3, {0, 1}));
  expect_sums({0, 1});
}

TEST_F(Reconfigured, OneThatHasEndedIsNamed) {
  contexts_.context(2).shutdown();
  const Error error = form_on(0, 1, {0, 2});
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::kPeerLost) << error.what();
  EXPECT_EQ(error.ranks(), std::vector<int>{1});
}

// Reconfiguration works after a loss, and shrink() works on a reconfigured group.
TEST_F(Reconfigured, AfterALoss) {
  ASSERT_FALSE(form(1, {0, 1, 2}));
  expect_sums({0, 1, 2});
  contexts_.context(1).shutdown();
  EXPECT_FALSE(sum_of_ones(*groups_[0]).ok());
  ASSERT_FALSE(form(2, {0, 2, 3}));
  expect_sums({0, 2, 3});
  contexts_.context(3).shutdown();
  std::vector<ShrinkResult> outcomes(3);
  std::thread other([&] { outcomes[2] = groups_[2]->shrink(Milliseconds(20000)).value(); });
  outcomes[0] = groups_[0]->shrink(Milliseconds(20000)).value();
  other.join();
  EXPECT_EQ(outcomes[0].survivors, (std::vector<int>{0, 1}));
  groups_[0] = outcomes[0].group;
  groups_[2] = outcomes[2].group;
  expect_sums({0, 2});
}

}  // namespace
}  // namespace ringdist
