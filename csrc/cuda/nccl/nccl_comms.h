// A group's communicators: one of all ranks for each device, and two for each two ranks that send
// to each other there, one for each direction: sends must wait neither for collectives nor for what
// comes the other way.
//
// Made by one thread at a time, which may also use them; check() and abort() by any.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "cuda/api/nccl_api.h"
#include "cuda/nccl/peers.h"
#include "engine/runner.h"

namespace ringdist::gpu {

class NcclComms {
 public:
  // What a communicator is for: collectives, or one direction between this rank and a peer.
  enum class Use : uint8_t { kCollectives, kSends, kReceives };
  // In a communicator of two.
  static constexpr int kSender = 0;
  static constexpr int kReceiver = 1;

  // Both outlive it.
  NcclComms(NcclApi& nccl, RunnerGroup& group) : nccl_(nccl), group_(group) {}
  // Waits for nothing: what is still under way must have ended, or been aborted.
  ~NcclComms();
  NcclComms(const NcclComms&) = delete;
  NcclComms& operator=(const NcclComms&) = delete;

  // Makes that for collectives, or both with `peer`, on the device, which is current in this
  // thread; nothing if they are there. All their ranks call it alike; who makes several goes by
  // pairs of ranks in their order, lower ranks first, lest ranks wait for each other in a ring.
  // Errors: kTimeout, kAborted, what NCCL or another rank says; then nothing is left of them.
  Error make(int device, int peer, TimePoint deadline);
  // One that was made; null once it was aborted.
  NcclComm find(int device, int peer, Use use) const;

  // Calls for communicators are made while it is held: abort() frees them.
  std::unique_lock<std::mutex> hold() const { return std::unique_lock(calls_); }
  // A call within a group of calls went well so far; what it only began, the group's end tells.
  static bool goes_on(NcclResult result) {
    return result == NcclResult::kSuccess || result == NcclResult::kInProgress;
  }
  // That of a call which ended with `result`: the call is given time to end, if it was only begun.
  // `what`: "all_reduce #3".
  Error error_of(NcclResult result, NcclComm comm, std::string_view what) const;
  // Why what is under way does not end.
  Error check();
  // Ends what is under way, and later calls. Once or more.
  void abort();
  bool aborted() const { return aborted_; }
  // Of what comes later.
  static Error has_ended();

 private:
  using Key = std::tuple<int, int, Use>;  // device, peer
  struct Offer;                           // of a rank that is to be in a new communicator

  static constexpr size_t kDirections = 2;
  using Ids = std::array<NcclUniqueId, kDirections>;

  Result<Ids> agree_on_ids(const std::vector<int>& ranks, TimePoint deadline);
  // One of so many ranks, this one being `rank` in it.
  Result<NcclComm> init(const NcclUniqueId& id, int size, int rank, TimePoint deadline);
  Error keep(Key key, NcclComm comm);
  Error await(NcclComm comm, std::string_view what, TimePoint deadline) const;
  Error failed(NcclResult result, NcclComm comm, std::string_view what) const;

  NcclApi& nccl_;
  RunnerGroup& group_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex calls_;  // before mutex_
  mutable std::mutex mutex_;  // a leaf
  std::map<Key, NcclComm> comms_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist::gpu
