// The devices of all ranks of a test, with the runners of csrc/cuda on them: streams and kernels by
// FakeCuda, on a thread that stands for the devices, and NCCL by FakeNccl.
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
  // kApart: by way of the host, as if the ranks did not share one.
  // kOneQueue: by way of the host, from a device where all of a rank's streams are one queue.
  enum class By : uint8_t { kNccl, kHost, kApart, kOneQueue };

  FakeDevices() : thread_([this] { run(); }) {}
  ~FakeDevices() {
    stops_ = true;
    thread_.join();
    streams.progress();
  }
  // On a stream of its own.
  OpRequest on_device(OpRequest request) {
    request.device_stream = DeviceStream{0, streams.make()};
    return request;
  }
  MakeDeviceRunner maker(By by) {
    // One that cannot be pinned is enough: then no rank has boxes.
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
