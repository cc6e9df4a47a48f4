// The way of a group's ops on devices, chosen when the first comes, by all its ranks alike: of
// collectives by those of the group, of sends and receives by each two. By NCCL, where each of them
// has it and a device of its own; else by way of the host.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread_annotations.h"
#include "cuda/stream/offer.h"
#include "cuda/stream/way.h"

namespace ringdist::gpu {

struct Ways {
  MakeWay nccl;  // called where each rank has it
  MakeWay host;
};

class ChosenWay final : public Way {
 public:
  enum class Wanted : uint8_t { kAny, kNccl, kHost };  // alike on all ranks

  ChosenWay(CudaApi& cuda, RunnerGroup& group, NcclFound nccl, Ways ways, Wanted wanted);

  // The first collective, and the first send or receive between two ranks, exchanges what they
  // have. Error (kNotSupported): NCCL is wanted, and a rank cannot.
  Error prepare(const DevicePlace& place, const Request& request, TimePoint deadline) override;
  Result<MakeWay> split(const std::vector<int>& ranks, TimePoint deadline) override;
  Error enqueue(const DeviceOp& op, Stream stream, Held& held) override;
  Error check() override;
  Error captured(const Request& request) const override;
  void abort() override;
  void end() override;

 private:
  int key_of(const Request& request) const;  // in chosen_
  Error choose(int device, int peer, TimePoint deadline);
  Result<bool> agree_on_nccl(int device, const std::vector<int>& ranks, TimePoint deadline);
  std::shared_ptr<Way> way_of(const Request& request) const;
  std::vector<std::shared_ptr<Way>> made() const;
  void use(int peer, bool nccl);

  CudaApi& cuda_;
  RunnerGroup& group_;
  const NcclFound nccl_;
  const Ways ways_;
  const Wanted wanted_;
  mutable std::mutex mutex_;                                                // a leaf
  std::map<bool, std::shared_ptr<Way>> made_ RINGDIST_GUARDED_BY(mutex_);   // by whether NCCL's
  std::map<int, std::shared_ptr<Way>> chosen_ RINGDIST_GUARDED_BY(mutex_);  // by peer, or kNoPeer
  bool aborted_ RINGDIST_GUARDED_BY(mutex_) = false;
};

}  // namespace ringdist::gpu
