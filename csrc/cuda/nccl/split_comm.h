// A communicator that was split off another group's, until the first op of the group that it is for
// takes it. Nothing is under way in it. One thread at a time.
#pragma once

#include <utility>

#include "cuda/api/nccl_api.h"

namespace ringdist::gpu {

class SplitComm {
 public:
  // `nccl` outlives it.
  SplitComm(NcclApi& nccl, NcclComm comm, int device) : nccl_(nccl), comm_(comm), device_(device) {}
  // Which waits for no other rank, as a destroy() might.
  ~SplitComm() {
    if (comm_ != nullptr) (void)nccl_.abort(comm_);
  }
  SplitComm(const SplitComm&) = delete;
  SplitComm& operator=(const SplitComm&) = delete;

  int device() const { return device_; }
  // Once.
  NcclComm take() { return std::exchange(comm_, nullptr); }

 private:
  NcclApi& nccl_;
  NcclComm comm_;
  const int device_;
};

}  // namespace ringdist::gpu
