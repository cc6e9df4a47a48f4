// NCCL communicators of one group. For each device there is one of all ranks, for collectives. For
// each pair of ranks with sends there are two, one per direction. Sends therefore wait neither for
// collectives nor for sends in the other direction.
//
// One thread at a time may create and use communicators. Any thread may call check() and abort().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
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
#include "engine/device/device_runner.h"

namespace ringdist::gpu {

// A communicator that was split off another group's. It belongs to this object until take(), by
// which the first op of the new group gets it, and has no pending work. One thread at a time.
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

// Creates, finds, checks and ends the communicators.
class NcclComms {
 public:
  // Use of a communicator: collectives, or one direction between this rank and a peer.
  enum class Use : uint8_t { kCollectives, kSends, kReceives };
  // Ranks in a communicator of two ranks.
  static constexpr int kSender = 0;
  static constexpr int kReceiver = 1;

  // `nccl` and `group` must outlive this object. `split` is a communicator of this group's ranks,
  // in their order, that was split off another group's. It is set on all ranks or null on all.
  NcclComms(NcclApi& nccl, RunnerDelegate& group, std::shared_ptr<SplitComm> split = nullptr)
      : nccl_(nccl), group_(group), split_(std::move(split)) {}
  // Destroys the communicators without waiting. Work on them must have ended or been aborted.
  ~NcclComms();
  NcclComms(const NcclComms&) = delete;
  NcclComms& operator=(const NcclComms&) = delete;

  // Creates the communicator for collectives (peer = kNoPeer), or both communicators with `peer`,
  // on the current device. Does nothing if they exist.
  //
  // All their ranks must call it alike. A caller that creates several must go by pairs of ranks in
  // ascending order, so that ranks do not wait in a ring. Blocks until `deadline`. Errors:
  // kTimeout, kAborted, or that of NCCL or of another rank. After an error nothing is left of them.
  Error make(int device, int peer, TimePoint deadline);
  // Returns the device of the first communicator for collectives; nullopt if there is none. All
  // ranks return a device or none does, because collectives have the same order on all ranks.
  std::optional<int> first_device() const { return first_device_; }
  // Splits the communicator of first_device(), which must exist and be on the current device.
  // Returns the part for a group of `ranks`, or null if this rank is not in it.
  //
  // All ranks call it alike, in the order of their collectives. Error kInvalidArgument: the ranks
  // disagree, and nothing was done. After any other error, which are those of make(), the parent
  // has been aborted. The group has to end then, because other ranks may still wait in the parent.
  Result<std::shared_ptr<SplitComm>> split(const std::vector<int>& ranks, TimePoint deadline);
  // Returns an existing communicator, or null if there is none or it was aborted.
  NcclComm find(int device, int peer, Use use) const;

  // Locks the communicators for a caller's calls, because abort() frees them.
  std::unique_lock<std::mutex> hold() const { return std::unique_lock(calls_); }
  // Returns true if a call inside a group of calls succeeded or has begun. In the latter case the
  // result comes with the end of the group.
  static bool goes_on(NcclResult result) {
    return result == NcclResult::kSuccess || result == NcclResult::kInProgress;
  }
  // Returns the error of a call with this `result`. If the call has only begun, waits for it. NCCL
  // connects two ranks at their first call, and each waits for the other. `what` names the op for
  // messages, such as "all_reduce #3".
  Error error_of(NcclResult result, NcclComm comm, std::string_view what, TimePoint deadline) const;
  // Returns the first error of the communicators, which explains why pending work does not end.
  Error check();
  // Aborts all communicators, and makes later calls fail. May be called again.
  void abort();
  // Returns true after the first abort().
  bool aborted() const { return aborted_; }
  // Returns the error of calls that come after abort().
  static Error has_ended();

 private:
  using Key = std::tuple<int, int, Use>;  // device, peer, use
  struct CommProposal;                    // message of a rank that will be in a new communicator

  static constexpr size_t kDirections = 2;
  using Ids = std::array<NcclUniqueId, kDirections>;

  // Receives the ids of new communicators from the first of the ranks.
  Result<Ids> agree_on_ids(const std::vector<int>& ranks, TimePoint deadline);
  // Returns the communicator that was split off, if each rank has it for this device. Otherwise
  // returns null on all ranks.
  Result<NcclComm> take_split(int device, TimePoint deadline);
  // Creates the communicator of all ranks.
  Result<NcclComm> for_all(int device, TimePoint deadline);
  // Splits the parent and waits for the result. Aborts the parent on failure.
  Result<NcclComm> split_off(int device, SplitPart part, TimePoint deadline);
  // Creates one communicator of `size` ranks, in which this process has the number `rank`.
  Result<NcclComm> init(const NcclUniqueId& id, int size, int rank, TimePoint deadline);
  // Registers a communicator, or aborts it if abort() was called meanwhile.
  Error keep(Key key, NcclComm comm);
  // Queries the state of a communicator.
  NcclResult ask(NcclComm comm, NcclResult& state) const;
  // Waits until the last call for the communicator is complete.
  Error await(NcclComm comm, std::string_view what, TimePoint deadline) const;
  // Makes an Error of a result.
  Error failed(NcclResult result, NcclComm comm, std::string_view what) const;

  NcclApi& nccl_;
  RunnerDelegate& group_;
  std::shared_ptr<SplitComm> split_;  // null once the first communicator has been created
  std::optional<int> first_device_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex calls_;  // locked before mutex_
  mutable std::mutex mutex_;  // a leaf lock
  std::map<Key, NcclComm> comms_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist::gpu
