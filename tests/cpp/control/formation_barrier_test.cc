// Formation barrier: control planes agree that all members of a group have found all others.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "control/fixture.h"

namespace ringdist::test {
namespace {

void expect_ranks_1_and_2_connect(const Nodes& nodes, uint64_t nonce,
                                  const std::vector<ControlMember>& members) {
  std::vector<std::future<Error>> others;
  for (int rank : {1, 2})
    others.push_back(std::async(std::launch::async, [&, rank] {
      return nodes[rank]->control->connect_group(nonce, rank, members, in(kSoon));
    }));
  for (auto& other : others) {
    const Error error = other.get();
    EXPECT_FALSE(error) << error.what();
  }
}

// No member finishes forming before all have found all others. The report of the last member
// travels along all links, in either direction. A process that ends right after its report was
// received must not break this.
TEST(ControlFormed, NobodyIsThereBeforeAllAre) {
  Nodes nodes = make_nodes(7);
  const std::vector<int> host{0, 0, 1, 1, 2, 3, 3};
  const auto members = members_of(nodes, host);
  for (uint64_t nonce = 1; nonce <= nodes.size(); ++nonce) {
    const size_t last = nonce - 1;
    std::vector<std::future<Error>> waiting;
    for (size_t i = 0; i < nodes.size(); ++i)
      if (i != last)
        waiting.push_back(std::async(std::launch::async, [&, i] {
          return nodes[i]->control->connect_group(nonce, static_cast<int>(i), members, in(kSoon));
        }));
    for (auto& one : waiting)
      EXPECT_EQ(one.wait_for(milliseconds(20)), std::future_status::timeout);
    const Error error =
        nodes[last]->control->connect_group(nonce, static_cast<int>(last), members, in(kSoon));
    EXPECT_FALSE(error) << error.what();
    for (auto& one : waiting) {
      const Error late = one.get();
      EXPECT_FALSE(late) << late.what();
    }
  }
}

// If a member abandons the group, the others form it without waiting; the engine then informs
// them.
TEST(ControlFormed, WhoGivesUpIsNotAwaited) {
  Nodes nodes = make_nodes(3);
  auto members = members_of(nodes, {0, 0, 1});
  members.push_back({3, 77, 3, "", "127.0.0.1:1", 1, "x"});
  auto gives_up = std::async(std::launch::async, [&] {
    return nodes[0]->control->connect_group(1, 0, members, in(milliseconds(20000)));
  });
  std::this_thread::sleep_for(milliseconds(50));
  nodes[0]->control->disconnect_group(1, 0);
  EXPECT_TRUE(gives_up.get());
  members.pop_back();
  expect_ranks_1_and_2_connect(nodes, 1, members);
}

// This also holds for a member without any link yet. It stays until all others have received its
// notice.
TEST(ControlFormed, WhoGivesUpAtOnceIsNotAwaited) {
  for (uint64_t nonce = 1; nonce <= 5; ++nonce) {
    Nodes nodes = make_nodes(3);
    const auto members = members_of(nodes, {0, 0, 1});
    auto gives_up = std::async(std::launch::async, [&] {
      return nodes[0]->control->connect_group(nonce, 0, members, in(milliseconds(20000)));
    });
    while (gives_up.wait_for(milliseconds(0)) == std::future_status::timeout)
      nodes[0]->control->disconnect_group(nonce, 0);
    EXPECT_TRUE(gives_up.get());
    expect_ranks_1_and_2_connect(nodes, nonce, members);
  }
}

// The member disconnected while its own set-up was in progress. The others have found it, and
// receive the notice of its end.
TEST(ControlFormed, WhoGaveUpBeforeIsNotAwaited) {
  Nodes nodes = make_nodes(3);
  const auto members = members_of(nodes, {0, 0, 1});
  CancellableDeadline departed(Clock::now() + kSoon);
  departed.cancelled = true;
  nodes[0]->control->disconnect_group(1, 0);
  EXPECT_TRUE(nodes[0]->control->connect_group(1, 0, members, departed));
  expect_ranks_1_and_2_connect(nodes, 1, members);
  EXPECT_TRUE(dump_shows(*nodes[0], "group 0000000000000001", false));
}

// A waiting request ends at once if its deadline is shortened or cancelled.
TEST(ControlFormed, ARequestMayTimeOutMeanwhile) {
  Nodes nodes = make_nodes(2);
  const auto members = members_of(nodes, {0, 1});
  for (const bool cancels : {false, true}) {
    CancellableDeadline deadline(in(milliseconds(60000)));
    auto waiting = std::async(std::launch::async, [&] {
      return nodes[0]->control->connect_group(cancels, 0, members, deadline);
    });
    EXPECT_EQ(waiting.wait_for(milliseconds(100)), std::future_status::timeout);
    if (cancels)
      deadline.cancelled = true;
    else
      deadline.shorten(Clock::now());
    const Error error = waiting.get();
    ASSERT_TRUE(error);
    EXPECT_EQ(error.kind(), cancels ? ErrorKind::kAborted : ErrorKind::kTimeout) << error.what();
  }
}

}  // namespace
}  // namespace ringdist::test
