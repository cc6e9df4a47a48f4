// Path through the host. It is used for devices that cannot reach each other, for ranks that share
// a device, and without NCCL.
//
// Values are copied to pinned memory, moved and reduced by an op of the host (shared memory, UCX),
// and copied back. Compressed ops move encoded bytes through the host, and the device does the
// arithmetic. Large ops of ranks on one host also use the device's arithmetic. Their copies go
// through mailboxes (host_mailboxes.h).
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/thread_annotations.h"
#include "cuda/api/cuda_api.h"
#include "cuda/stream/device_link.h"
#include "cuda/stream/device_path.h"
#include "cuda/stream/host_mailboxes.h"
#include "cuda/stream/staged_exchange.h"
#include "cuda/stream/stream_schedule.h"

namespace ringdist::gpu {

// Pool of pinned memory. Blocks are reused, because allocation is slow and may wait for the device.
// Must be owned by a shared_ptr, which its blocks share. Any thread.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  // Limit of unused memory. Blocks beyond it are freed.
  static constexpr size_t kMostKept = size_t{256} << 20;

  // `cuda` must outlive the pool and its blocks.
  explicit PinnedPool(CudaApi& cuda) : cuda_(cuda) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Returns a block of at least `bytes` bytes. The size is rounded up to a power of two, at least
  // 4096. The block returns to the pool with its last owner. Errors: those of
  // CudaApi::allocate_pinned().
  Result<std::shared_ptr<std::byte>> take(size_t bytes);

 private:
  // Takes back a block of `bytes` bytes from its last owner, on any thread. May wait for the
  // device, because it may free blocks.
  void put_back(std::byte* memory, size_t bytes);

  CudaApi& cuda_;
  std::mutex mutex_;  // a leaf lock
  // Unused blocks by size. No list is empty.
  std::map<size_t, std::vector<std::byte*>> free_ RINGDIST_GUARDED_BY(mutex_);
  size_t kept_ RINGDIST_GUARDED_BY(mutex_) = 0;  // total bytes in free_
};

// State that all ops of the path share.
struct HostPathState {
  CudaApi& cuda;
  int rank;
  int size;
  std::shared_ptr<RevocableGroup> group;
  std::shared_ptr<PinnedPool> pinned;
  std::shared_ptr<FirstError> failed;  // first error of a host op

  // Creates an exchange with a flag of its own in pinned memory. Errors: those of
  // PinnedPool::take().
  Result<std::shared_ptr<StagedExchange>> exchange() const;
};

// DeviceLink through pinned memory and sends and receives of the host, for one op. If a message has
// variable parts, their lengths go first, and then only the bytes in use.
class HostLink final : public DeviceLink {
 public:
  HostLink(const HostPathState& staging, Stream stream, KeptAlive& held)
      : staging_(staging), stream_(stream), held_(held) {}

  Error begin() override;
  Error send(int peer, const DeviceBytes& message, Stream stream) override;
  Error receive(int peer, const DeviceBytes& message, Stream stream) override;
  Error end() override;

 private:
  // A message to copy to the device after it has arrived.
  struct Arrival {
    void* to;
    const std::byte* from;
    size_t bytes;
  };
  // Adds a send or receive to the current exchange. Returns its pinned memory.
  Result<std::byte*> add(int peer, bool sends, const DeviceBytes& message);
  // Runs an exchange, and makes the stream wait for it.
  Error visit(StagedExchange& exchange) const;

  const HostPathState& staging_;
  const Stream stream_;
  KeptAlive& held_;
  // Returns the exchange of lengths, which is created at the first use.
  Result<StagedExchange*> lengths();

  std::shared_ptr<StagedExchange> lengths_;  // precedes the messages if some have variable parts
  std::shared_ptr<StagedExchange> exchange_;
  std::vector<Arrival> arrivals_;
};

// Chooses for each op between mailboxes, a schedule with HostLink, and one op of the host. See
// DevicePath for the contracts.
class HostPath final : public DevicePath {
 public:
  HostPath(CudaApi& cuda, RunnerDelegate& group);
  ~HostPath() override { HostPath::end(); }

  Error prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) override;
  Error enqueue(const DeviceOp& op, Stream stream, KeptAlive& held) override;
  Error check() override;
  Error captured(const OpSpec& request) const override;
  void abort() override;
  void end() override { staging_.group->end(); }

 private:
  // Returns the mailboxes. They are null until a suitable op has been prepared, and if the group
  // cannot have them.
  std::shared_ptr<HostMailboxes> mailboxes() const;
  // Creates the mailboxes at the first call. All ranks call it for the same op.
  Error make_mailboxes(TimePoint deadline);
  // Moves the group's host threads near the device, at the first call.
  void set_affinity_near(int device);
  // Runs a schedule over mailboxes. Meanwhile the hosts compare what the ranks have called.
  Error enqueue_by_mailboxes(const DeviceOp& op, Stream stream, KeptAlive& held);
  // Runs one op of the host on copies of the values.
  Error enqueue_plain(const DeviceOp& op, Stream stream, KeptAlive& held);
  // Takes pinned memory for all values of a buffer, and appends it to `out`.
  Result<std::byte*> pinned_for(const Buffer& values, Buffer& out, KeptAlive& held);

  const HostPathState staging_;
  RunnerDelegate& group_;
  StreamSchedules schedules_;
  bool near_ = false;         // set_affinity_near() was called
  bool asked_ = false;        // make_mailboxes() was called
  mutable std::mutex mutex_;  // a leaf lock
  std::shared_ptr<HostMailboxes> mailboxes_ RINGDIST_GUARDED_BY(mutex_);
  bool aborted_ RINGDIST_GUARDED_BY(mutex_) = false;
};

}  // namespace ringdist::gpu
