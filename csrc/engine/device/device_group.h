// What a DeviceRunner needs of its group, by ops of that on the host.
//
// Collectives are those of two siblings, where no other op comes between: what is exchanged while
// ops are prepared, where a rank that does not come ends the devices' part of the group alone; and
// what devices call. Sends and receives are internal ones of the group itself: a sibling would wait
// for those that do not take part.
//
// run_on_host(): any thread; the rest: one at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "engine/device/device_runner.h"
#include "engine/op/op.h"
#include "os/cpu_set.h"
#include "os/memfd.h"

namespace ringdist {

// How ops of a group are called, on the host.
struct HostOps {
  std::function<Result<std::shared_ptr<Op>>(OpRequest)> submit;
  std::function<void(const Op&)> await;  // until it has ended
};

class DeviceGroup final : public RunnerDelegate {
 public:
  // Makes the sibling of a suffix.
  using MakeDuplicate = std::function<Result<HostOps>(const std::string& suffix)>;

  // Has the thread that runs those ops stay on CPUs.
  using MoveThread = std::function<void(const CpuSet& cpus)>;

  DeviceGroup(int rank, int size, HostOps group, MakeDuplicate duplicate, MoveThread move)
      : rank_(rank),
        size_(size),
        group_(std::move(group)),
        duplicate_(std::move(duplicate)),
        move_(std::move(move)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<std::vector<std::vector<std::byte>>> exchange(const std::vector<int>& ranks,
                                                       ConstBytes mine,
                                                       TimePoint deadline) override;
  Result<std::shared_ptr<GroupSharedMemory>> share(size_t bytes, TimePoint deadline) override;
  void set_affinity_near(const std::string& address) override {
    set_affinity(CpuSet::near(address));
  }
  void set_affinity(const CpuSet& cpus) {
    near_ = cpus;
    move_(near_);
  }
  Error run_on_host(HostOp op, std::function<void(Error)> ended) override;

 private:
  using Everyones = std::vector<std::vector<std::byte>>;

  Result<HostOps> duplicate(const std::string& suffix);
  Result<Everyones> exchange_all(ConstBytes mine, TimePoint deadline);
  Result<Everyones> exchange_with(int peer, ConstBytes mine, TimePoint deadline);

  const int rank_;
  const int size_;
  const HostOps group_;
  const MakeDuplicate duplicate_;
  const MoveThread move_;
  CpuSet near_;  // empty: anywhere
  std::mutex mutex_;
  std::map<std::string, HostOps> duplicates_ RINGDIST_GUARDED_BY(mutex_);
};

// The memory of ranks that share a host, each one's mapped by all: they tell each other where in
// /proc its file is, and who opens one finds a number there that only its owner can have told.
class MappedMemory final : public GroupSharedMemory {
 public:
  // What each rank gave, in their order. Blocks.
  using Exchange = std::function<Result<std::vector<std::vector<std::byte>>>(ConstBytes mine)>;

  // Null, on all ranks alike, if any cannot map all. All ranks call it. Errors: of the exchange.
  static Result<std::shared_ptr<GroupSharedMemory>> make(int rank, size_t bytes,
                                                         const Exchange& exchange);

  Bytes of_rank(int rank) const override;

 private:
  explicit MappedMemory(std::vector<Mapping> mappings) : mappings_(std::move(mappings)) {}

  const std::vector<Mapping> mappings_;
};

}  // namespace ringdist
