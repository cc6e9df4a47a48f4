#include "torch/ddp/device_low_rank.h"

#include <c10/core/StreamGuard.h>

#include <utility>

#include "torch/base/devices.h"
#include "torch/ddp/pending_bucket.h"

namespace ringdist {
namespace {

// If an exception is thrown, records the event and makes the caller's stream wait for it. No one
// will wait for the bucket, and its memory and residuals will be used again.
class RecordIfThrown {
 public:
  RecordIfThrown(c10::Event& event, c10::Stream stream, c10::Stream caller)
      : event_(event), stream_(stream), caller_(caller) {}
  ~RecordIfThrown() {
    if (event_.was_marked_for_recording()) return;
    try {
      event_.record(stream_);
      event_.block(caller_);
    } catch (...) {  // the device is gone
    }
  }
  RecordIfThrown(const RecordIfThrown&) = delete;
  RecordIfThrown& operator=(const RecordIfThrown&) = delete;

 private:
  c10::Event& event_;
  const c10::Stream stream_, caller_;
};

// Returns a Future that is marked at once. Waiting for it makes a stream wait for the current one.
FuturePtr future_of(const at::Tensor& bucket) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{bucket.device()});
  mark(*future, nullptr, {bucket});
  return future;
}

}  // namespace

DeviceLowRank::~DeviceLowRank() {
  for (const Flight& flight : flights_) try {
      flight.done->synchronize();
    } catch (...) {  // in a forked child or at the process' end the device is gone
    }
}

c10::Stream DeviceLowRank::stream_of(c10::Device device) {
  const auto known = streams_.find(device.index());
  if (known != streams_.end()) return known->second;
  return streams_.emplace(device.index(), side_stream(device)).first->second;
}

void DeviceLowRank::forget_landed() {
  while (!flights_.empty() && flights_.front().done->query()) flights_.pop_front();
}

DeviceLowRank::Running DeviceLowRank::run(const at::Tensor& bucket, PlannedBucket planned,
                                          const StartRest& rest) {
  const c10::Device device = bucket.device();
  const c10::Stream caller = current_stream(device);
  const c10::Stream stream = stream_of(device);
  forget_landed();
  // From here on the flight holds the memory until the stream has passed its event.
  flights_.push_back({std::make_shared<c10::Event>(device.type()), std::move(planned)});
  const Flight& flight = flights_.back();
  const RecordIfThrown if_thrown(*flight.done, stream, caller);

  c10::Event ready(device.type());
  ready.record(caller);
  ready.block(stream);
  use_on(bucket, stream);
  const c10::StreamGuard guard(stream);
  const auto stages = make_(bucket, flight.planned.low_rank);
  PendingWorkBucket::Works works{average_(stages->lefts())};
  if (rest) {  // before the device gets to the right factors
    const c10::StreamGuard back(caller);
    works.push_back(rest(flight.planned));
  }
  // These waits are of the stream. The host does not block.
  works[0]->wait();
  works.push_back(average_(stages->rights()));
  works.back()->wait();
  stages->finish();
  if (rest) works[1]->wait();
  flight.done->record(stream);
  auto future = future_of(bucket);
  return {future, std::make_shared<PendingWorkBucket>(std::move(works), flight.done, future)};
}

}  // namespace ringdist
