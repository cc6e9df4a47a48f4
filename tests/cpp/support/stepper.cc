#include "support/stepper.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

namespace ringdist {
namespace {

constexpr auto kPause = std::chrono::microseconds(100);

}  // namespace

void Stepper::hang() {
  std::fprintf(stderr, "a test hangs; what its ranks do:\n");
  for (int rank = 0; rank < ranks_.size(); ++rank)
    std::fprintf(stderr, "%s", ranks_.context(rank).dump().c_str());
  _exit(4);
}

void Stepper::on_lane(int rank, const std::function<void()>& task) {
  if (!ranks_.context(rank).progress().call(task, Clock::now() + kHang)) hang();
}

bool Stepper::turn(int rank) {
  bool any = false;
  on_lane(rank, [&] {
    ProgressEngine& progress = ranks_.context(rank).progress();
    progress.dispatcher().set_now(now_);
    any = let_through(ranks_.network(), ranks_.context(rank).id()) > 0;
    progress.find_transport("local")->progress();
    while (progress.dispatcher().run_work()) continue;
  });
  return any;
}

// Submits in one task of the lane, so that all ops exist before the first of them begins.
void Stepper::submit(Communicator& communicator, int rank, std::vector<OpRequest> requests) {
  on_lane(rank, [&] {
    for (OpRequest& request : requests) {
      auto op = communicator.submit(std::move(request), /*will_wait=*/false);
      ASSERT_TRUE(op.ok()) << op.error().what();
      ops_.push_back(op.value());
    }
  });
}

void Stepper::meet(const Group& group, const Trace& trace) {
  now_ = Clock::now();
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    OpRequest barrier;
    barrier.kind = Collective::kBarrier;
    barrier.dtype = DType::kBytes;
    submit(*group[static_cast<size_t>(rank)], rank, {barrier});
  }
  const TimePoint deadline = Clock::now() + kHang;
  while (!trace.all_have_sent(ranks_.size())) {
    if (Clock::now() > deadline) hang();
    std::this_thread::sleep_for(kPause);
  }
  ASSERT_EQ(finish(), std::vector<std::string>());
}

void Stepper::call(const Group& group, const Calls& calls) {
  now_ = Clock::now();
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    turn(rank);
    submit(*group[static_cast<size_t>(rank)], rank, calls(rank));
    turn(rank);
  }
}

std::vector<std::string> Stepper::finish() {
  const auto finished = [](const auto& op) { return op->finished(); };
  const TimePoint deadline = Clock::now() + kHang;
  for (;;) {
    bool any = false;
    for (int rank = 0; rank < ranks_.size(); ++rank) any |= turn(rank);
    if (any) continue;
    if (std::ranges::all_of(ops_, finished)) break;
    if (Clock::now() > deadline) hang();
    std::this_thread::sleep_for(kPause);  // no message; the ranks wait for something else
  }
  std::vector<std::string> errors;
  for (const auto& op : std::exchange(ops_, {}))
    if (Error error = op->error()) errors.push_back(error.what());
  return errors;
}

}  // namespace ringdist
