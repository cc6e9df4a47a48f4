// PendingBuckets of DDP: buckets with an average under way.
#pragma once

#include <c10/core/Event.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "compress/bucket.h"
#include "torch/work/future.h"
#include "torch/work/interrupts.h"

namespace ringdist {

// A bucket on the host. It queries the Future itself, as callbacks may run after threads that wait
// for it.
class PendingFutureBucket final : public PendingBucket {
 public:
  explicit PendingFutureBucket(FuturePtr future) : future_(std::move(future)) {}

  bool ended() const override { return future_->completed(); }
  bool failed() const override { return future_->hasError(); }
  void wait() const override { future_->wait(); }
  void on_end(std::function<void()> callback) override {
    future_->addCallback([callback = std::move(callback)](c10::ivalue::Future&) { callback(); });
  }

 private:
  const FuturePtr future_;
};

// A bucket on a device. It queries the Works, because the Future is marked as soon as the device
// will wait for them.
class PendingWorkBucket final : public PendingBucket {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  // The bucket has ended when all Works have and `done` has passed. `done` may be null.
  PendingWorkBucket(Works works, std::shared_ptr<const c10::Event> done, FuturePtr future)
      : works_(std::move(works)), done_(std::move(done)), future_(std::move(future)) {}

  bool ended() const override {
    return std::ranges::all_of(works_, [](const auto& work) { return work->isCompleted(); }) &&
           (!done_ || done_->query());
  }
  bool failed() const override {
    return std::ranges::any_of(works_, [](const auto& work) { return !work->isSuccess(); });
  }
  // Polls, and reacts to Ctrl-C.
  void wait() const override {
    wait_in_slices(std::nullopt, [this](std::optional<Milliseconds> slice) {
      const TimePoint end = deadline_after(slice);
      while (!ended() && Clock::now() < end) std::this_thread::sleep_for(kPause);
      return ended();
    });
  }
  // The end comes later than that of the Future.
  bool ends_later() const override { return true; }
  void on_end(std::function<void()> callback) override {
    future_->addCallback([callback = std::move(callback)](c10::ivalue::Future&) { callback(); });
  }

 private:
  static constexpr std::chrono::microseconds kPause{100};  // between polls

  const Works works_;
  const std::shared_ptr<const c10::Event> done_;
  const FuturePtr future_;
};

}  // namespace ringdist
