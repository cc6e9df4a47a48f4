// A communicator that was split off another group's. It belongs to this object until the first op
// of the new group takes it, and has no pending work. One thread at a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cuda/api/nccl_api.h"

namespace ringdist::gpu {

// Holds one communicator until take().
class SplitComm {
 public:
  // `nccl` must outlive this object.
  SplitComm(NcclApi& nccl, NcclComm comm, int device) : nccl_(nccl), comm_(comm), device_(device) {}
  // Aborts the communicator if nobody took it. Abort is used because destroy() might wait for other
  // ranks.
  ~SplitComm() {
    if (comm_ != nullptr) (void)nccl_.abort(comm_);
  }
  SplitComm(const SplitComm&) = delete;
  SplitComm& operator=(const SplitComm&) = delete;

  // Returns the device of the communicator.
  int device() const { return device_; }
  // Returns the communicator and passes ownership to the caller. May be called once.
  NcclComm take() { return std::exchange(comm_, nullptr); }

 private:
  NcclApi& nccl_;
  NcclComm comm_;
  const int device_;
};

// Position of one rank after a group is split. Ranks exchange it as raw bytes, because all run the
// same build.
struct SplitPart {
  int32_t color;  // lowest rank of the part; own + of for a rank by itself
  int32_t key;    // number of the rank within the part
  int32_t size;   // number of ranks in the part
};

// Returns the part of rank `own` in a group of `of` ranks. The ranks in `ranks` form one part, in
// this order. Any other rank forms a part by itself.
//
// NCCL has a color for ranks of no part (NCCL_SPLIT_NOCOLOR). It is not used, because NCCL then
// crashes the process if the split fails: it writes to a communicator that does not exist.
//
// Pure; any thread.
SplitPart part_of(int own, int of, const std::vector<int>& ranks);

// Checks the parts of all ranks, which are indexed by rank. Error kInvalidArgument: they are not
// consistent, and the message names a rank and what it called. Pure; any thread.
Error check_parts(const std::vector<SplitPart>& parts);

}  // namespace ringdist::gpu
