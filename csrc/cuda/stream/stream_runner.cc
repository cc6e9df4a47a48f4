#include "cuda/stream/stream_runner.h"

#include <unistd.h>

#include <string>

#include "base/check.h"
#include "cuda/api/cuda_api.h"
#include "cuda/nccl/op_peers.h"

namespace ringdist::gpu {
namespace {

// Lets callers' streams wait for an op.
class StreamWork final : public DeviceWork {
 public:
  StreamWork(CudaApi& cuda, int device, std::shared_ptr<void> done)
      : cuda_(cuda), device_(device), done_(std::move(done)) {}
  Error order(void* stream) override {
    // a null handle is the default stream of this device
    const ScopedDevice current(cuda_, device_);
    return current.error() ? current.error() : cuda_.wait(stream, done_.get());
  }

 private:
  CudaApi& cuda_;
  const int device_;
  const std::shared_ptr<void> done_;
};

}  // namespace

StreamRunner::StreamRunner(CudaApi& cuda, std::shared_ptr<EventWatcher> watch,
                           std::shared_ptr<DevicePath> way)
    : cuda_(cuda), watch_(std::move(watch)), path_(std::move(way)), pid_(getpid()) {}

StreamRunner::~StreamRunner() {
  // after fork() neither threads nor the device exist, so nothing may be destroyed
  if (getpid() != pid_) {
    new std::shared_ptr<EventWatcher>(watch_);
    new std::shared_ptr<DevicePath>(path_);
    new std::map<Key, OpStream>(std::move(lanes_));
    return;
  }
  path_->end();
  for (const auto& [key, lane] : lanes_) cuda_.free_stream(lane.stream);
}

StreamRunner::Key StreamRunner::key_of(int device, const OpSpec& request) {
  return {device, peer_of(request), request.envelope && request.envelope->sends};
}

Result<std::shared_ptr<void>> StreamRunner::make_event() {
  const Result<Event> made = cuda_.make_event();
  if (!made.ok()) return made.error();
  return std::shared_ptr<void>(made.value(), [this_cuda = &cuda_, pid = pid_](Event event) {
    if (getpid() == pid) this_cuda->free_event(event);
  });
}

Error StreamRunner::make_lane(Key key) {
  if (lanes_.contains(key)) return {};
  auto ready = make_event();
  if (!ready.ok()) return ready.error();
  const Result<Stream> stream = cuda_.make_stream();
  if (!stream.ok()) return stream.error();
  lanes_[key] = {stream.value(), ready.value()};
  return {};
}

Error StreamRunner::prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) {
  const ScopedDevice current(cuda_, place.device);
  if (current.error()) return current.error();
  const Key key = key_of(place.device, request);
  const Result<bool> captured = cuda_.captures(place.stream);
  if (!captured.ok()) return captured.error();
  if (captured.value() && !lanes_.contains(key))
    return Error(ErrorKind::kNotSupported,
                 "ringdist: the first operation of a group on a device, and the first send or "
                 "receive between two ranks, cannot be captured into a CUDA graph, as they wait "
                 "for the other ranks; call one before the capture");
  if (Error error = path_->prepare(place, request, deadline)) return error;
  if (captured.value())
    if (Error error = path_->captured(request)) return error;
  return make_lane(key);
}

Result<MakeDeviceRunner> StreamRunner::split(const std::vector<int>& ranks, TimePoint deadline) {
  auto way = path_->split(ranks, deadline);
  if (!way.ok()) return way.error();
  if (!way.value()) return MakeDeviceRunner();
  return MakeDeviceRunner([&cuda = cuda_, watch = watch_,
                           make = way.value()](RunnerDelegate& group) {
    return Result(
        std::unique_ptr<DeviceRunner>(std::make_unique<StreamRunner>(cuda, watch, make(group))));
  });
}

Result<std::shared_ptr<DeviceWork>> StreamRunner::enqueue(const DeviceOp& op, const OpStream& lane,
                                                          WatchedOp& watched) {
  auto made = make_event();
  if (!made.ok()) return made.error();
  if (Error error = cuda_.record(lane.ready.get(), op.device_stream.stream)) return error;
  if (Error error = cuda_.wait(lane.stream, lane.ready.get())) return error;
  const Error error = path_->enqueue(op, lane.stream, watched.held);
  // Also after an error, because memory of enqueued work is in use until the event.
  if (Error unrecorded = cuda_.record(made.value().get(), lane.stream))
    return error ? error : unrecorded;
  watched.event = std::move(made.value());
  if (error) return error;
  return std::shared_ptr<DeviceWork>(
      std::make_shared<StreamWork>(cuda_, op.device_stream.device, watched.event));
}

Result<std::shared_ptr<DeviceWork>> StreamRunner::start(DeviceOp op,
                                                        std::function<void(Error)> ended) {
  const ScopedDevice current(cuda_, op.device_stream.device);
  if (current.error()) return current.error();
  const auto lane = lanes_.find(key_of(op.device_stream.device, op.request));
  check(lane != lanes_.end(), "an op that was not prepared");
  const Result<bool> captured = cuda_.captures(op.device_stream.stream);
  if (!captured.ok()) return captured.error();
  WatchedOp watched;
  auto work = enqueue(op, lane->second, watched);
  if (captured.value()) {
    // A captured op is not running, and its event cannot be queried.
    if (work.ok()) ended({});
    return work;
  }
  watched.check = [way = path_] { return way->check(); };
  if (work.ok()) watched.ended = std::move(ended);
  watched.held.push_back(std::move(op.keep_alive));
  if (watched.event) watch_->add(std::move(watched));
  return work;
}

}  // namespace ringdist::gpu
