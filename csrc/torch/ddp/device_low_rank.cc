#include "torch/ddp/device_low_rank.h"

#include <c10/core/StreamGuard.h>

#include <utility>

#include "torch/base/devices.h"
#include "torch/ddp/pending_bucket.h"

namespace ringdist {
namespace {

// Where something is thrown, records the event, and has the caller's stream wait for it: nobody
// will wait for the bucket, whose memory and what it owes are used again.
class RecordIfThrown {
 public:
  RecordIfThrown(c10::Event& event, c10::Stream stream, c10::Stream caller)
      : event_(event), stream_(stream), caller_(caller) {}
  ~RecordIfThrown() {
    if (event_.was_marked_for_recording()) return;
    try {
      event_.record(stream_);
      event_.block(caller_);
    } catch (...) {  // of a device that is no more
    }
  }
  RecordIfThrown(const RecordIfThrown&) = delete;
  RecordIfThrown& operator=(const RecordIfThrown&) = delete;

 private:
  c10::Event& event_;
  const c10::Stream stream_, caller_;
};

// Marked at once: who waits for it has a stream wait for the current one.
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
    } catch (...) {  // a forked child, or the end of the process: there is no device any more
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
  if (rest) {  // while the device is about to turn to the right factors
    const c10::StreamGuard back(caller);
    works.push_back(rest(flight.planned));
  }
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
