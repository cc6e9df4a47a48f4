// DdpCompressor: compresses the gradients of one DistributedDataParallel model. It passes DDP's
// buckets to a GradientCompressor (compress/gradient_compressor.h). Both forms of the hook use it.
//
// Any thread, without the GIL. DDP calls run() once per bucket, in the same order on all ranks.
#pragma once

#include <c10/core/Event.h>

#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <utility>
#include <vector>

#include "compress/bucket.h"
#include "compress/cost_probe.h"
#include "compress/gradient_compressor.h"
#include "compress/link_probe.h"
#include "compress/low_rank.h"
#include "compress/time_marker.h"
#include "torch/backend.h"
#include "torch/base/devices.h"
#include "torch/ddp/device_low_rank.h"
#include "torch/work/future.h"

namespace ringdist {

// A time marker of a device. It has passed when the device has finished the present work of this
// thread's current stream.
class DeviceTimeMarker final : public TimeMarker {
 public:
  explicit DeviceTimeMarker(c10::Device device)
      : event_(device.type(), c10::EventFlag::BACKEND_DEFAULT) {  // an event with timing
    event_.record(current_stream(device));
  }

  bool passed() const override { return event_.query(); }
  // Returns the seconds from `earlier`, a marker of the same device, to this one. Both must have
  // passed.
  double since(const TimeMarker& earlier) const override {
    return 1e-3 * static_cast<const DeviceTimeMarker&>(earlier).event_.elapsedTime(event_);
  }

 private:
  c10::Event event_;
};

// The clock by which method "auto" measures durations. It is the clock of the device of the first
// bucket. Any thread, after the first bucket has come.
class BucketClock {
 public:
  // Chooses the clock by the first bucket. Later calls do nothing.
  void begin(c10::Device device) {
    if (!device_) device_ = device;
  }
  // Returns a marker of the present time.
  TimeMarkerPtr now() const {
    if (!device_ || device_->is_cpu()) return host_now();
    return std::make_shared<DeviceTimeMarker>(*device_);
  }

 private:
  std::optional<c10::Device> device_;
};

// Averages single buckets. A bucket's Future combines an allreduce of some pieces and low-rank
// averages of others. One thread at a time. Errors are raised as exceptions.
class BucketReducer {
 public:
  // `probe` must outlive this object.
  BucketReducer(c10::intrusive_ptr<ProcessGroupRing> group, CostProbe& probe)
      : group_(std::move(group)), probe_(probe) {}

  using Running = DeviceLowRank::Running;
  // Averages the bucket in place. All ranks have to call it in the same order.
  Running run(const at::Tensor& buffer, PlannedBucket planned);

 private:
  // All-reduces the pieces of the bucket that are not low-rank, with their codecs.
  WorkPtr run_rest(const at::Tensor& buffer, const PlannedBucket& planned);
  Running run_on_host(const at::Tensor& buffer, PlannedBucket planned);
  Running run_on_device(const at::Tensor& buffer, PlannedBucket planned);
  // Throws in a forked child.
  void check_not_forked() const;
  // Each is made when it is first needed, which is in the same step on all ranks.
  LowRankReducer& reducer();
  DeviceLowRank& streamed(c10::Device device);

  const c10::intrusive_ptr<ProcessGroupRing> group_;
  CostProbe& probe_;
  std::unique_ptr<LowRankReducer> reducer_;
  std::unique_ptr<DeviceLowRank> streamed_;
};

// The compression state of one model. Owned by shared_ptr, which the hooks hold.
class DdpCompressor {
 public:
  using Residuals = std::vector<std::pair<std::string, at::Tensor>>;
  // Residuals as in CompressionState: fp32 tensors with one dimension, row-major.
  struct State {
    int64_t steps = 0;
    double scale = 1;
    Residuals residuals;
  };

  // Buckets that make up a step.
  enum class Buckets : uint8_t {
    kOfDdp,  // the buckets that come before the backward pass ends
    kAll,    // all buckets, at any time
  };

  // Raises ArgumentError for an invalid option.
  DdpCompressor(c10::intrusive_ptr<ProcessGroupRing> group, CompressionOptions options,
                AtStep at_step, Buckets buckets = Buckets::kOfDdp);

  // Adds a parameter before the first step. `name` identifies its residual in a State. Raises
  // ArgumentError for an invalid rule.
  void add_parameter(const at::Tensor& tensor, std::string name, ParameterRule rule);

  // Averages the bucket's gradients over the group, in place. The Future holds a list with the
  // bucket's buffer. float64 and complex gradients are not compressed; sparse ones raise
  // NotSupportedError. Raises an error after the group was shrunk or reconfigured. Residuals and
  // failures are handled as by GradientCompressor::add().
  FuturePtr run(c10d::GradBucket& bucket);

  // Returns what has been compressed and how.
  CompressionReport report() { return compressor_->report(); }
  // Returns the norm of all residuals of this rank.
  double residual_norm() { return compressor_->residual_norm(); }
  // Returns the state of this rank. With `committed`, uses
  // GradientCompressor::state_if_committed().
  State state(bool committed = false);
  // Replaces all residuals, which are converted from `state.scale`, and the number of steps, like
  // GradientCompressor::load(). Raises ArgumentError and changes nothing if a residual has a wrong
  // size or the scale is too far from the present one. The tensors must be contiguous.
  void load(const State& state);

 private:
  // Fails the group and raises its error if a gradient of the bucket, which is on the host, is NaN.
  void check_nan(const Bucket& bucket);
  // Converts a bucket of DDP.
  Bucket describe(c10d::GradBucket& bucket);

  const c10::intrusive_ptr<ProcessGroupRing> group_;
  const std::shared_ptr<Communicator> made_for_;  // run() throws if group_ has another one
  const std::shared_ptr<BucketClock> clock_ = std::make_shared<BucketClock>();
  LinkProbe probe_;     // used where work_ is
  BucketReducer work_;  // not locked: buckets come one after another
  const std::unique_ptr<GradientCompressor> compressor_;
};

// The hook that DDP's reducer calls for each bucket, without Python.
class CompressHook final : public c10d::CppCommHookInterface<std::shared_ptr<DdpCompressor>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    return state_->run(bucket);
  }
};

// Registers the hook with a reducer. Raises c10::Error if that has a hook already.
inline void register_comm_hook(c10d::Reducer& reducer, std::shared_ptr<DdpCompressor> compression) {
  reducer.register_comm_hook(std::make_unique<CompressHook>(std::move(compression)));
}

}  // namespace ringdist
