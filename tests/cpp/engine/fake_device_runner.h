// Fake devices: the ops that they are given complete when the test requests it.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/device_runner.h"
#include "support/ranks.h"

namespace ringdist::test {

class FakeWork final : public DeviceWork {
 public:
  Error order(void*) override { return {}; }
};

// The state of one rank's fake runner. It outlives the runner, so that the test can examine it.
// Thread-safe.
class FakeDevice {
 public:
  using Prepare = std::function<Error(RunnerDelegate&, const OpSpec&, TimePoint deadline)>;

  // The test sets the following before the op that they affect.
  Prepare prepare;  // null: succeeds at once
  std::function<Result<MakeDeviceRunner>(const std::vector<int>& ranks)>
      split;              // null: no split is needed
  Error start_error;      // error of the next op
  Error make_error;       // error of the next runner
  bool captures = false;  // ops end within start()

  // Waits until `count` ops have been started. Returns false on a timeout.
  bool await_started(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kHang, [&] { return started_.size() >= count; });
  }
  std::vector<uint64_t> numbers() const {
    std::lock_guard lock(mutex_);
    std::vector<uint64_t> out;
    for (const Started& one : started_) out.push_back(one.op.number);
    return out;
  }
  DeviceOp& op(size_t which) { return started_.at(which).op; }
  std::function<void(Error)> ended(size_t which) { return started_.at(which).ended; }
  // Completes an op as the device would.
  void end(size_t which, const Error& error = {}) {
    std::function<void(Error)> ended;
    {
      std::lock_guard lock(mutex_);
      ended = std::exchange(started_.at(which).ended, nullptr);
      started_[which].op.keep_alive = nullptr;
    }
    if (ended) ended(error);
  }

  int made() const { return count(made_); }
  int aborts() const { return count(aborts_); }
  int destroyed() const { return count(destroyed_); }
  bool await_abort(TimePoint deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [&] { return aborts_ > 0; });
  }
  bool await_end() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kHang, [&] { return destroyed_ == made_; });
  }

  static MakeDeviceRunner maker(const std::shared_ptr<FakeDevice>& device) {
    return [device](RunnerDelegate& group) -> Result<std::unique_ptr<DeviceRunner>> {
      if (Error error = std::exchange(device->make_error, {})) return error;
      device->change([&] { ++device->made_; });
      return std::unique_ptr<DeviceRunner>(new FakeDeviceRunner(device, group));
    };
  }

 private:
  struct Started {
    DeviceOp op;
    std::function<void(Error)> ended;
  };

  class FakeDeviceRunner final : public DeviceRunner {
   public:
    FakeDeviceRunner(std::shared_ptr<FakeDevice> device, RunnerDelegate& group)
        : device_(std::move(device)), group_(group) {}
    ~FakeDeviceRunner() override {
      end_all();
      device_->change([&] { ++device_->destroyed_; });
    }

    Error prepare(const DeviceStream&, const OpSpec& request, TimePoint deadline) override {
      if (device_->aborts() > 0) return aborted();
      return device_->prepare ? device_->prepare(group_, request, deadline) : Error();
    }
    Result<std::shared_ptr<DeviceWork>> start(DeviceOp op,
                                              std::function<void(Error)> ended) override {
      if (device_->aborts() > 0) return aborted();
      if (Error error = std::exchange(device_->start_error, {})) return error;
      size_t which = 0;
      device_->change([&] {
        which = device_->started_.size();
        device_->started_.push_back({std::move(op), std::move(ended)});
      });
      if (device_->captures) device_->end(which);
      return std::shared_ptr<DeviceWork>(std::make_shared<FakeWork>());
    }
    Result<MakeDeviceRunner> split(const std::vector<int>& ranks, TimePoint) override {
      return device_->split ? device_->split(ranks) : MakeDeviceRunner();
    }
    void abort() override {
      device_->change([&] { ++device_->aborts_; });
      end_all();
    }

   private:
    static Error aborted() { return {ErrorKind::kAborted, "the device was told to stop"}; }
    void end_all() {
      for (size_t i = 0; i < device_->numbers().size(); ++i) device_->end(i, aborted());
    }

    const std::shared_ptr<FakeDevice> device_;
    RunnerDelegate& group_;
  };

  template <typename Change>
  void change(const Change& change) {
    std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  int count(const int& of) const {
    std::lock_guard lock(mutex_);
    return of;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Started> started_;  // a deque, so that elements keep their addresses
  int made_ = 0;
  int aborts_ = 0;
  int destroyed_ = 0;
};

// Ranks with one device each.
class DeviceRanks {
 public:
  explicit DeviceRanks(RanksOptions options = {})
      : devices_(devices_of(options.size)), ranks_(with_devices(std::move(options), devices_)) {}

  Ranks& ranks() { return ranks_; }
  int size() const { return ranks_.size(); }
  Communicator& operator[](int rank) { return ranks_[rank]; }
  FakeDevice& device(int rank) { return *devices_[static_cast<size_t>(rank)]; }

 private:
  using Devices = std::vector<std::shared_ptr<FakeDevice>>;

  static Devices devices_of(int size) {
    Devices out;
    for (int rank = 0; rank < size; ++rank) out.push_back(std::make_shared<FakeDevice>());
    return out;
  }
  static RanksOptions with_devices(RanksOptions options, const Devices& devices) {
    options.make_runner = [devices](int rank) {
      return FakeDevice::maker(devices[static_cast<size_t>(rank)]);
    };
    return options;
  }

  const Devices devices_;
  Ranks ranks_;
};

// Returns an allreduce of a tensor on device 0. The fake never reads the tensor.
inline OpRequest on_device(std::vector<float>& data) {
  OpRequest out = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
  out.device_stream.emplace();
  return out;
}

inline OpRequest message_on_device(std::vector<float>& data, int peer, bool sends) {
  OpRequest out = on_device(data);
  out.kind = Collective::kPointToPoint;
  out.reduce_op = ReduceOp::kNone;
  out.envelope = Envelope{peer, 0, sends};
  if (sends) std::swap(out.input, out.output);
  return out;
}

inline Error host_op(Communicator& group) {
  std::vector<float> data(16, 1.0f);
  return run_op(group, allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
}

inline RanksOptions ranks_of(int size, Milliseconds timeout = Milliseconds(20000)) {
  RanksOptions out;
  out.size = size;
  out.timeout = timeout;
  return out;
}

inline bool says(const Error& error, const std::string& text) {
  return error && error.message().find(text) != std::string::npos;
}

inline std::string text_of(const Error& error) { return error ? error.what() : "no error"; }

inline std::shared_ptr<Op> submitted(Communicator& group, OpRequest request) {
  auto op = group.submit(std::move(request), /*will_wait=*/false);
  EXPECT_TRUE(op.ok()) << text_of(op.error());
  return op.ok() ? op.value() : nullptr;
}

// Submits one op on each of the first `count` ranks, while all ranks run.
inline std::vector<std::shared_ptr<Op>> in_flight(DeviceRanks& ranks, int count,
                                                  std::vector<float>& data) {
  std::vector<std::shared_ptr<Op>> out(static_cast<size_t>(count));
  ranks.ranks().run([&](int rank) {
    if (rank < count) out[static_cast<size_t>(rank)] = submitted(ranks[rank], on_device(data));
  });
  return out;
}

}  // namespace ringdist::test
