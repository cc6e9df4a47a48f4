// A DeviceRunner with ops that double their values, on a stream of the test device.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/device/device_runner.h"
#include "torch/test_device.h"

namespace ringdist::test {

using Flag = std::shared_ptr<std::atomic<bool>>;

inline Flag make_flag() { return std::make_shared<std::atomic<bool>>(false); }

class DoublingWork final : public DeviceWork {
 public:
  explicit DoublingWork(Flag done) : done_(std::move(done)) {}
  Error order(void* stream) override {
    device_streams().push(stream, {[done = done_] { return done->load(); }, {}});
    return {};
  }

 private:
  const Flag done_;
};

class DoublingRunner final : public DeviceRunner {
 public:
  Error prepare(const DeviceStream&, const OpSpec&, TimePoint) override { return {}; }
  Result<std::shared_ptr<DeviceWork>> start(DeviceOp op,
                                            std::function<void(Error)> ended) override {
    const Flag ready = make_flag(), done = make_flag();
    device_streams().push(op.device_stream.stream, {{}, [ready] { *ready = true; }});
    device_streams().push(own_, {[ready] { return ready->load(); },
                                 [op, done, ended] {
                                   op.output.for_each(0, op.output.count(), [](Bytes piece) {
                                     auto* const values = reinterpret_cast<float*>(piece.data());
                                     for (size_t i = 0; i < piece.size() / sizeof(float); ++i)
                                       values[i] *= 2;
                                   });
                                   *done = true;
                                   ended({});
                                 }});
    return std::shared_ptr<DeviceWork>(std::make_shared<DoublingWork>(done));
  }
  Result<MakeDeviceRunner> split(const std::vector<int>&, TimePoint) override {
    return MakeDeviceRunner();
  }
  void abort() override {}

 private:
  void* const own_ = device_streams().make();
};

inline Result<std::unique_ptr<DeviceRunner>> make_doubling_runner(RunnerDelegate&) {
  return std::unique_ptr<DeviceRunner>(std::make_unique<DoublingRunner>());
}

}  // namespace ringdist::test
