// A group's communicators: one of all ranks for each device, and two for each two ranks that send
// to each other there, one for each direction: sends must wait neither for collectives nor for what
// comes the other way.
//
// Made by one thread at a time, which may also use them; check() and abort() by any.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "cuda/api/nccl_api.h"
#include "cuda/nccl/op_peers.h"
#include "cuda/nccl/split_comm.h"
#include "engine/device/device_runner.h"

namespace ringdist::gpu {

class NcclComms {
 public:
  // What a communicator is for: collectives, or one direction between this rank and a peer.
  enum class Use : uint8_t { kCollectives, kSends, kReceives };
  // In a communicator of two.
  static constexpr int kSender = 0;
  static constexpr int kReceiver = 1;

  // Both outlive it. `split`: of this group's ranks, in their order, split off that of another
  // group, on each of them; or null on all.
  NcclComms(NcclApi& nccl, RunnerDelegate& group, std::shared_ptr<SplitComm> split = nullptr)
      : nccl_(nccl), group_(group), split_(std::move(split)) {}
  // Waits for nothing: what is still under way must have ended, or been aborted.
  ~NcclComms();
  NcclComms(const NcclComms&) = delete;
  NcclComms& operator=(const NcclComms&) = delete;

  // Makes that for collectives, or both with `peer`, on the device, which is current in this
  // thread; nothing if they are there. All their ranks call it alike; who makes several goes by
  // pairs of ranks in their order, lower ranks first, lest ranks wait for each other in a ring.
  // Errors: kTimeout, kAborted, what NCCL or another rank says; then nothing is left of them.
  Error make(int device, int peer, TimePoint deadline);
  // The device of the first communicator for collectives that was made: of one on each rank, as all
  // call those in one order, or of none on any.
  std::optional<int> first_device() const { return first_device_; }
  // Splits that for a group of `ranks`; null where this one is not among them. All ranks call it
  // alike, in the order of their collectives, the device being current; it is there. Errors:
  // kInvalidArgument, ranks disagree, and nothing was done; else as of make(), and the communicator
  // that was split is aborted, as other ranks may be in it for good: the group has to end.
  Result<std::shared_ptr<SplitComm>> split(const std::vector<int>& ranks, TimePoint deadline);
  // One that was made; null once it was aborted.
  NcclComm find(int device, int peer, Use use) const;

  // Calls for communicators are made while it is held: abort() frees them.
  std::unique_lock<std::mutex> hold() const { return std::unique_lock(calls_); }
  // A call within a group of calls went well so far; what it only began, the group's end tells.
  static bool goes_on(NcclResult result) {
    return result == NcclResult::kSuccess || result == NcclResult::kInProgress;
  }
  // That of a call which ended with `result`. One that was only begun is waited for: NCCL connects
  // two ranks at their first call, for which each waits for the other. `what`: "all_reduce #3".
  Error error_of(NcclResult result, NcclComm comm, std::string_view what, TimePoint deadline) const;
  // Why what is under way does not end.
  Error check();
  // Ends what is under way, and later calls. Once or more.
  void abort();
  bool aborted() const { return aborted_; }
  // Of what comes later.
  static Error has_ended();

 private:
  using Key = std::tuple<int, int, Use>;  // device, peer
  struct CommProposal;                    // of a rank that is to be in a new communicator

  static constexpr size_t kDirections = 2;
  using Ids = std::array<NcclUniqueId, kDirections>;

  Result<Ids> agree_on_ids(const std::vector<int>& ranks, TimePoint deadline);
  // What was split off, if each rank has it for this device; else null on all.
  Result<NcclComm> take_split(int device, TimePoint deadline);
  Result<NcclComm> for_all(int device, TimePoint deadline);
  Result<NcclComm> split_off(int device, SplitPart part, TimePoint deadline);
  // One of so many ranks, this one being `rank` in it.
  Result<NcclComm> init(const NcclUniqueId& id, int size, int rank, TimePoint deadline);
  Error keep(Key key, NcclComm comm);
  NcclResult ask(NcclComm comm, NcclResult& state) const;
  Error await(NcclComm comm, std::string_view what, TimePoint deadline) const;
  Error failed(NcclResult result, NcclComm comm, std::string_view what) const;

  NcclApi& nccl_;
  RunnerDelegate& group_;
  std::shared_ptr<SplitComm> split_;  // until the first is made
  std::optional<int> first_device_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex calls_;  // before mutex_
  mutable std::mutex mutex_;  // a leaf
  std::map<Key, NcclComm> comms_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist::gpu
