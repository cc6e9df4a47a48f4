// Devices of all ranks of a test, with the device runners of csrc/cuda on them. FakeCuda provides
// streams and kernels, FakeNccl provides NCCL, and a background thread executes the streams.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "cuda/stream/event_watcher.h"
#include "cuda/stream/host_path.h"
#include "cuda/stream/nccl_path.h"
#include "cuda/stream/stream_runner.h"
#include "engine/bootstrap/communicator_options.h"
#include "engine/op/op.h"
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#include "support/fake_streams.h"

namespace ringdist {

class FakeDevices {
 public:
  // Device path of the runners. By::kApart uses the host path as if the ranks did not share a
  // host. By::kOneQueue uses the host path on a device that has a single queue for all streams of
  // a rank.
  enum class By : uint8_t { kNccl, kHost, kApart, kOneQueue };

  FakeDevices() : thread_([this] { run(); }) {}
  ~FakeDevices() {
    stops_ = true;
    thread_.join();
    streams.progress();
  }
  // Returns the request on a new stream of device 0.
  OpRequest on_device(OpRequest request) {
    request.device_stream = DeviceStream{0, streams.make()};
    return request;
  }
  MakeDeviceRunner maker(By by) {
    // One pin that fails is enough: then no rank uses mailboxes.
    if (by == By::kApart) cuda.fail_next("pin");
    if (by == By::kOneQueue) streams.share_queues();
    return [this, by](RunnerDelegate& group) -> Result<std::unique_ptr<DeviceRunner>> {
      std::shared_ptr<gpu::DevicePath> way;
      if (by == By::kNccl)
        way = std::make_shared<gpu::NcclPath>(cuda, nccl, group);
      else
        way = std::make_shared<gpu::HostPath>(cuda, group);
      return std::unique_ptr<DeviceRunner>(
          std::make_unique<gpu::StreamRunner>(cuda, watch_, std::move(way)));
    };
  }

  FakeStreams streams;
  FakeCuda cuda{streams};
  FakeNccl nccl{streams};

 private:
  void run() {
    while (!stops_) {
      streams.progress();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  const std::shared_ptr<gpu::EventWatcher> watch_ = std::make_shared<gpu::EventWatcher>(cuda);
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace ringdist
