// A group's communicators: one of all ranks for each device, and one for each two ranks that send
// to each other there, as those must not wait for collectives.
//
// Made by one thread at a time, which may also use them; check() and abort() by any.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "cuda/api/nccl_api.h"
#include "engine/runner.h"

namespace ringdist::gpu {

class NcclComms {
 public:
  static constexpr int kAll = -1;

  // Both outlive it.
  NcclComms(NcclApi& nccl, RunnerGroup& group) : nccl_(nccl), group_(group) {}
  // Waits for nothing: what is still under way must have ended, or been aborted.
  ~NcclComms();
  NcclComms(const NcclComms&) = delete;
  NcclComms& operator=(const NcclComms&) = delete;

  // Makes the one with `peer`, or with kAll, on the device, which is current in this thread;
  // nothing if it is there. All its ranks call it alike. Errors: kTimeout, kAborted, what NCCL or
  // another rank says; then nothing is left of it.
  Error make(int device, int peer, TimePoint deadline);
  // One that was made; null once it was aborted. Its ranks are the group's, or the lower of two and
  // the other.
  NcclComm find(int device, int peer) const;
  static int rank_of_two(int rank, int other) { return rank < other ? 0 : 1; }

  // That of a call which ended with `result`: the call is given time to end, if it was only begun.
  // `what`: "all_reduce #3".
  Error error_of(NcclResult result, NcclComm comm, std::string_view what) const;
  // Why what is under way does not end.
  Error check();
  // Ends what is under way, and later calls. Once or more.
  void abort();
  bool aborted() const { return aborted_; }

 private:
  using Key = std::pair<int, int>;  // device, peer
  struct Offer;                     // of a rank that is to be in a new communicator

  std::vector<int> ranks_with(int peer) const;
  Result<NcclUniqueId> agree_on_id(const std::vector<int>& ranks, TimePoint deadline);
  Error await(NcclComm comm, std::string_view what, TimePoint deadline) const;
  Error failed(NcclResult result, NcclComm comm, std::string_view what) const;

  NcclApi& nccl_;
  RunnerGroup& group_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;  // a leaf
  std::map<Key, NcclComm> comms_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist::gpu
