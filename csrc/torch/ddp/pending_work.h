// A bucket of DDP on its way on a device: its Work is asked, since the Future is marked as soon as
// whoever waits for it has the device wait.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "compress/bucket.h"
#include "torch/work/future.h"
#include "torch/work/interrupts.h"

namespace ringdist {

class PendingWork final : public PendingBucket {
 public:
  PendingWork(c10::intrusive_ptr<c10d::Work> work, FuturePtr future)
      : work_(std::move(work)), future_(std::move(future)) {}

  bool ended() const override { return work_->isCompleted(); }
  bool failed() const override { return !work_->isSuccess(); }
  // Hears of Ctrl-C.
  void wait() const override {
    wait_in_slices(std::nullopt, [this](std::optional<Milliseconds> slice) {
      const TimePoint end = slice ? Clock::now() + *slice : TimePoint::max();
      while (!ended() && Clock::now() < end) std::this_thread::sleep_for(kPause);
      return ended();
    });
  }
  bool ends_later() const override { return true; }
  void on_end(std::function<void()> callback) override {
    future_->addCallback([callback = std::move(callback)](c10::ivalue::Future&) { callback(); });
  }

 private:
  static constexpr std::chrono::microseconds kPause{100};

  const c10::intrusive_ptr<c10d::Work> work_;
  const FuturePtr future_;
};

}  // namespace ringdist
