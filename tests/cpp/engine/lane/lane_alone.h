// An Dispatcher by itself, with Groups: the test is its lane, its host and its transport.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "engine/lane/executor.h"
#include "support/fake_transport.h"
#include "support/requests.h"

namespace ringdist::test {

inline constexpr int64_t kLaneSegment = 4096;

class FakeDispatcherDelegate final : public DispatcherDelegate {
 public:
  bool run_elsewhere(std::function<void()> task) override {
    if (--threads < 0) throw std::bad_alloc();
    task();
    return true;
  }
  void flood(const Notice& notice) override {
    if (--words < 0) throw std::bad_alloc();
    (void)notice.encode();  // as the control plane's needs memory
    flooded.push_back(notice);
  }

  int threads = 1 << 20;  // so many more tasks run
  int words = 1 << 20;
  std::vector<Notice> flooded;
};

// Of one rank of each group; the others send nothing.
struct LoneProgressEngine {
  LoneProgressEngine() { EXPECT_TRUE(token.take()); }

  // A rank's place in a group of those processes, which has not formed.
  std::shared_ptr<GroupSlot> add(const GroupDescriptor& membership,
                                 FailureNotifier::OnFailed on_failed = nullptr) {
    GroupConfig config;
    config.name = "test";
    config.early_window = EagerCredit::kSegments * kLaneSegment;
    config.on_failed = std::move(on_failed);
    auto seat = std::make_shared<GroupSlot>(executor, membership.rank, membership.size(), config);
    executor.add(seat);
    return seat;
  }
  GroupDescriptor membership(uint64_t nonce, const std::vector<ContextId>& contexts, int rank = 0) {
    GroupDescriptor out;
    out.nonce = nonce;
    out.rank = rank;
    for (const ContextId context : contexts)
      out.members.push_back({context, &transport, context == 1 ? "here" : "there"});
    return out;
  }
  // Rank 0 of it, and a process for each rank unless `contexts` says otherwise.
  std::shared_ptr<GroupSlot> make_group(uint64_t nonce,
                                        const std::vector<ContextId>& contexts = {1, 2},
                                        FailureNotifier::OnFailed on_failed = nullptr) {
    const GroupDescriptor members = membership(nonce, contexts);
    auto seat = add(members, std::move(on_failed));
    executor.form(seat, members);
    return seat;
  }

  // A rank's first op.
  static std::shared_ptr<Op> make_op(OpRequest request, int rank = 0, int size = 2) {
    Planner planner({rank, size, "direct", false, kLaneSegment});
    const uint64_t number = request.endpoint ? 0 : 1;
    auto op = planned_op(planner, std::move(request), number);
    op->started = Clock::now();
    op->deadline = op->started + std::chrono::minutes(1);
    return op;
  }
  // An allreduce; its memory outlives it.
  static std::shared_ptr<Op> make_op(std::vector<float>& data, int rank = 0, int size = 2) {
    return make_op(allreduce_request(data, DType::kFloat32, ReduceOp::kSum), rank, size);
  }

  void pass(Duration time) {
    executor.set_now(Clock::now() + time);
    executor.tick();
  }

  Statistics statistics;
  FakeDispatcherDelegate host;
  ProgressLock token;
  Dispatcher executor{statistics, int64_t{1} << 24, token, host};
  FakeTransport transport{[this](SendId ticket) { executor.on_sent(ticket, {}); }};
};

}  // namespace ringdist::test
