// Chooses the path of a group's ops on devices at the first op. All ranks of the group choose
// together for collectives, and two ranks choose for their sends and receives. They choose NCCL if
// each of them has NCCL, and a device of its own or one that may be shared. Otherwise they choose
// the host path.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread_annotations.h"
#include "cuda/stream/device_path.h"
#include "cuda/stream/path_rules.h"

namespace ringdist::gpu {

// Functions that create the two paths.
struct PathFactories {
  MakeDevicePath nccl;  // called only if each rank has NCCL
  MakeDevicePath host;
};

// Forwards each op to the path that was chosen for it. See DevicePath for the contracts.
class PathSelector final : public DevicePath {
 public:
  enum class Wanted : uint8_t { kAny, kNccl, kHost };  // the requested path; equal on all ranks

  PathSelector(CudaApi& cuda, RunnerDelegate& group, NcclInfo nccl, PathFactories ways,
               Wanted wanted);

  // At the first collective, and at the first send or receive between two ranks, exchanges
  // DeviceCapabilities. Error kNotSupported: NCCL was requested, but a rank cannot use it.
  Error prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) override;
  Result<MakeDevicePath> split(const std::vector<int>& ranks, TimePoint deadline) override;
  Error enqueue(const DeviceOp& op, Stream stream, KeptAlive& held) override;
  Error check() override;
  Error captured(const OpSpec& request) const override;
  void abort() override;
  void end() override;

 private:
  int key_of(const OpSpec& request) const;  // the key in chosen_
  // Chooses the path for a key together with the other ranks.
  Error choose(int device, int peer, TimePoint deadline);
  // Exchanges DeviceCapabilities. Returns true if the ranks use NCCL.
  Result<bool> agree_on_nccl(int device, const std::vector<int>& ranks, TimePoint deadline);
  // Returns the path for an op, or null if none has been chosen.
  std::shared_ptr<DevicePath> path_of(const OpSpec& request) const;
  // Returns the paths that exist.
  std::vector<std::shared_ptr<DevicePath>> made() const;
  // Creates the path unless it exists, and sets it for `peer`. Aborts it if abort() came before.
  void use(int peer, bool nccl);

  CudaApi& cuda_;
  RunnerDelegate& group_;
  const NcclInfo nccl_;
  const PathFactories paths_;
  const Wanted wanted_;
  mutable std::mutex mutex_;  // a leaf lock
  std::map<bool, std::shared_ptr<DevicePath>> made_
      RINGDIST_GUARDED_BY(mutex_);  // key: it is the NCCL path
  std::map<int, std::shared_ptr<DevicePath>> chosen_
      RINGDIST_GUARDED_BY(mutex_);  // key: the peer, or kNoPeer
  bool aborted_ RINGDIST_GUARDED_BY(mutex_) = false;
};

}  // namespace ringdist::gpu
