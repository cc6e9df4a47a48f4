// A Dispatcher with Groups in which the test plays the lane, the host and the transport.
// Single-threaded.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "engine/progress/dispatcher.h"
#include "support/fake_transport.h"
#include "support/requests.h"

namespace ringdist::test {

inline constexpr int64_t kLaneSegment = 4096;

class FakeDispatcherDelegate final : public DispatcherDelegate {
 public:
  bool run_on_pool(std::function<void()> task) override {
    if (--threads < 0) throw std::bad_alloc();
    task();
    return true;
  }
  void flood(const Notice& notice) override {
    if (--words < 0) throw std::bad_alloc();
    (void)notice.encode();  // needs memory, like the control plane
    flooded.push_back(notice);
  }

  int threads = 1 << 20;  // number of tasks until no thread is left
  int words = 1 << 20;
  std::vector<Notice> flooded;
};

// Contains one rank of each group. The other ranks send nothing.
struct LoneProgressEngine {
  LoneProgressEngine() { EXPECT_TRUE(lock.take()); }

  // Adds a rank's slot of a group that has not formed.
  std::shared_ptr<GroupSlot> add(const GroupDescriptor& membership,
                                 FailureNotifier::OnFailed on_failed = nullptr) {
    GroupConfig config;
    config.name = "test";
    config.eager_window = EagerCredit::kSegments * kLaneSegment;
    config.on_failed = std::move(on_failed);
    auto slot = std::make_shared<GroupSlot>(dispatcher, membership.rank, membership.size(), config);
    dispatcher.add(slot);
    return slot;
  }
  GroupDescriptor membership(uint64_t nonce, const std::vector<ContextId>& contexts, int rank = 0) {
    GroupDescriptor out;
    out.nonce = nonce;
    out.rank = rank;
    for (const ContextId context : contexts)
      out.members.push_back({context, &transport, context == 1 ? "here" : "there"});
    return out;
  }
  // Creates rank 0 of a formed group. Each rank has its own process unless `contexts` differs.
  std::shared_ptr<GroupSlot> make_group(uint64_t nonce,
                                        const std::vector<ContextId>& contexts = {1, 2},
                                        FailureNotifier::OnFailed on_failed = nullptr) {
    const GroupDescriptor members = membership(nonce, contexts);
    auto slot = add(members, std::move(on_failed));
    dispatcher.form(slot, members);
    return slot;
  }

  // Returns a rank's first op.
  static std::shared_ptr<Op> make_op(OpRequest request, int rank = 0, int size = 2) {
    Planner planner({rank, size, "direct", false, kLaneSegment});
    const uint64_t number = request.envelope ? 0 : 1;
    auto op = planned_op(planner, std::move(request), number);
    op->started = Clock::now();
    op->deadline = op->started + std::chrono::minutes(1);
    return op;
  }
  // Returns an allreduce. `data` must outlive it.
  static std::shared_ptr<Op> make_op(std::vector<float>& data, int rank = 0, int size = 2) {
    return make_op(allreduce_request(data, DType::kFloat32, ReduceOp::kSum), rank, size);
  }

  void pass(Duration time) {
    dispatcher.set_now(Clock::now() + time);
    dispatcher.tick();
  }

  Statistics statistics;
  FakeDispatcherDelegate delegate;
  ProgressLock lock;
  Dispatcher dispatcher{statistics, int64_t{1} << 24, lock, delegate};
  FakeTransport transport{[this](SendId send_id) { dispatcher.on_sent(send_id, {}); }};
};

}  // namespace ringdist::test
