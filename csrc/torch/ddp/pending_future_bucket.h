// A bucket of DDP on its way: its Future. That itself is asked, because its callbacks may come
// after whoever waits for it.
#pragma once

#include <functional>
#include <utility>

#include "compress/bucket.h"
#include "torch/work/future.h"

namespace ringdist {

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

}  // namespace ringdist
