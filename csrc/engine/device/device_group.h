// DeviceGroup: gives a DeviceRunner the services that it needs of its group, by means of ops on the
// host.
//
// Collectives run in two duplicates, where no other op comes in between. "/devices" carries the
// exchanges while ops are prepared; a rank that does not take part ends only the devices' part of
// the group there. "/on-host" carries the ops that devices request. Sends and receives run in the
// group itself, in a tag space of their own. In a duplicate they would wait for ranks that do not
// take part.
//
// run_on_host() may be called by any thread; the rest by one thread at a time.
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

// Functions that run ops of a group on the host.
struct HostOps {
  std::function<Result<std::shared_ptr<Op>>(OpRequest)> submit;
  std::function<void(const Op&)> await;  // waits until the op has ended
};

// Implements RunnerDelegate for a Communicator. Holds no reference to it, only the functions.
class DeviceGroup final : public RunnerDelegate {
 public:
  // Creates the duplicate with that suffix. Errors: those of Communicator::duplicate().
  using MakeDuplicate = std::function<Result<HostOps>(const std::string& suffix)>;

  // Binds the progress thread to CPUs.
  using MoveThread = std::function<void(const CpuSet& cpus)>;

  // `group` runs ops in the group itself.
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
  // Binds the progress thread to `cpus`, and later shared memory to their NUMA node.
  void set_affinity(const CpuSet& cpus) {
    near_ = cpus;
    move_(near_);
  }
  Error run_on_host(HostOp op, std::function<void(Error)> ended) override;

 private:
  using Everyones = std::vector<std::vector<std::byte>>;

  // Returns the duplicate with that suffix, which is created once.
  Result<HostOps> duplicate(const std::string& suffix);
  // Exchanges bytes among all ranks, which give equal sizes. Returns them by rank.
  Result<Everyones> exchange_all(ConstBytes mine, TimePoint deadline);
  // Exchanges bytes with `peer`. This rank's come first in the result.
  Result<Everyones> exchange_with(int peer, ConstBytes mine, TimePoint deadline);

  const int rank_;
  const int size_;
  const HostOps group_;
  const MakeDuplicate duplicate_;
  const MoveThread move_;
  CpuSet near_;  // near the device, or empty for no preference
  std::mutex mutex_;
  std::map<std::string, HostOps> duplicates_ RINGDIST_GUARDED_BY(mutex_);
};

// Shared memory of the ranks of a host. Each rank maps the memory files of all others, which it
// opens through /proc. A file starts with a random number that its owner has sent to the others, so
// that each rank can verify that it has opened the right file.
class MappedMemory final : public GroupSharedMemory {
 public:
  // Exchanges bytes: returns the bytes of each rank, by rank. All give the same size. Blocks.
  using Exchange = std::function<Result<std::vector<std::vector<std::byte>>>(ConstBytes mine)>;

  // Creates memory of `bytes` for each rank. All ranks have to call it. Returns null on all ranks
  // if any rank cannot map all files. Errors: those of the exchange.
  static Result<std::shared_ptr<GroupSharedMemory>> make(int rank, size_t bytes,
                                                         const Exchange& exchange);

  Bytes of_rank(int rank) const override;

 private:
  explicit MappedMemory(std::vector<Mapping> mappings) : mappings_(std::move(mappings)) {}

  const std::vector<Mapping> mappings_;
};

}  // namespace ringdist
