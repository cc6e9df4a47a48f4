// Fake lane of a Group under test. The test sets the clock, and flooded notices are stored.
// Single-threaded.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "engine/group/group_slot.h"
#include "engine/op/op_execution.h"

namespace ringdist::test {

// Returns the notice that a rank destroyed the group after its op `last`.
inline Notice leave_notice(uint64_t nonce, int rank, uint64_t last) {
  return make_notice(NoticeKind::kLeave, nonce, 0, rank, last);
}

class FakeGroupDelegate final : public GroupDelegate {
 public:
  Statistics statistics;
  ProgressState state{statistics, int64_t{1} << 24};
  std::vector<Notice> flooded;

  ProgressState& progress_state() override { return state; }
  void flood(const Notice& notice) override {
    if (--words < 0) throw std::bad_alloc();
    flooded.push_back(notice);
  }
  int words = 1 << 20;  // number of floods until memory runs out
  // Returns the completion callback for the transport of the lane.
  std::function<void(SendId)> on_sent() {
    return [this](SendId send_id) { complete_send(state, send_id, {}); };
  }
  void finish_op(const std::shared_ptr<Op>& op, Error error) noexcept override {
    (void)op->finish(std::move(error));
    for (const auto& callback : op->take_callbacks()) callback();
  }

  // Runs all queued steps, then frees the ops that have ended.
  void work(Group& group) {
    while (!state.work.empty()) run_next_step(state);
    group.release_ended();
  }
  int count(NoticeKind kind) const {
    return static_cast<int>(std::ranges::count(flooded, kind, &Notice::kind));
  }
};

}  // namespace ringdist::test
