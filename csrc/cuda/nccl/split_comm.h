// A communicator that was split off another group's, until the first op of the group that it is for
// takes it. Nothing is under way in it. One thread at a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
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

// Where a rank of a group comes to when that is split. Pure; any thread.

// As it goes to the others, which run the same build.
struct SplitPart {
  int32_t color;  // the part's lowest rank
  int32_t key;    // the rank in the part
  int32_t size;   // of the part
};

// Of rank `own` of a group of `of` ranks, some of which, in this order, will be a group. If it is
// not one of them, it is a part by itself: NCCL has a color for ranks of no part
// (NCCL_SPLIT_NOCOLOR), but ends their process if the split fails, as it then writes to a
// communicator that they have not.
SplitPart part_of(int own, int of, const std::vector<int>& ranks);

// Of all ranks' parts, by rank. kInvalidArgument: they do not fit together; who says what.
Error check_parts(const std::vector<SplitPart>& parts);

}  // namespace ringdist::gpu
