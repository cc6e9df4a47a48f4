// The way of a group's ops on devices, chosen when the first comes, by all its ranks alike: of
// collectives by those of the group, of sends and receives by each two. By NCCL, where each of them
// has it and a device of its own; else by way of the host.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread_annotations.h"
#include "cuda/stream/device_path.h"
#include "cuda/stream/path_rules.h"

namespace ringdist::gpu {

struct PathFactories {
  MakeDevicePath nccl;  // called where each rank has it
  MakeDevicePath host;
};

class PathSelector final : public DevicePath {
 public:
  enum class Wanted : uint8_t { kAny, kNccl, kHost };  // alike on all ranks

  PathSelector(CudaApi& cuda, RunnerDelegate& group, NcclInfo nccl, PathFactories ways,
               Wanted wanted);

  // The first collective, and the first send or receive between two ranks, exchanges what they
  // have. Error (kNotSupported): NCCL is wanted, and a rank cannot.
  Error prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) override;
  Result<MakeDevicePath> split(const std::vector<int>& ranks, TimePoint deadline) override;
  Error enqueue(const DeviceOp& op, Stream stream, KeptAlive& held) override;
  Error check() override;
  Error captured(const OpSpec& request) const override;
  void abort() override;
  void end() override;

 private:
  int key_of(const OpSpec& request) const;  // in chosen_
  Error choose(int device, int peer, TimePoint deadline);
  Result<bool> agree_on_nccl(int device, const std::vector<int>& ranks, TimePoint deadline);
  std::shared_ptr<DevicePath> path_of(const OpSpec& request) const;
  std::vector<std::shared_ptr<DevicePath>> made() const;
  void use(int peer, bool nccl);

  CudaApi& cuda_;
  RunnerDelegate& group_;
  const NcclInfo nccl_;
  const PathFactories paths_;
  const Wanted wanted_;
  mutable std::mutex mutex_;  // a leaf
  std::map<bool, std::shared_ptr<DevicePath>> made_
      RINGDIST_GUARDED_BY(mutex_);  // by whether NCCL's
  std::map<int, std::shared_ptr<DevicePath>> chosen_
      RINGDIST_GUARDED_BY(mutex_);  // by peer, or kNoPeer
  bool aborted_ RINGDIST_GUARDED_BY(mutex_) = false;
};

}  // namespace ringdist::gpu
