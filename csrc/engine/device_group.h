// What a Runner needs of its group, by ops of that on the host.
//
// Collectives are those of two siblings, where no other op comes between: what is exchanged while
// ops are prepared, where a rank that does not come ends the devices' part of the group alone; and
// what devices call. Sends and receives are internal ones of the group itself: a sibling would wait
// for those that do not take part.
//
// exchange(): one thread at a time; run_on_host(): any.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_annotations.h"
#include "engine/op/op.h"
#include "engine/runner.h"

namespace ringdist {

// How ops of a group are called, on the host.
struct HostOps {
  std::function<Result<std::shared_ptr<Op>>(OpRequest)> submit;
  std::function<void(const Op&)> await;  // until it has ended
};

class DeviceGroup final : public RunnerGroup {
 public:
  // Makes the sibling of a suffix.
  using MakeSibling = std::function<Result<HostOps>(const std::string& suffix)>;

  DeviceGroup(int rank, int size, HostOps group, MakeSibling sibling)
      : rank_(rank), size_(size), group_(std::move(group)), sibling_(std::move(sibling)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<std::vector<std::vector<std::byte>>> exchange(const std::vector<int>& ranks,
                                                       ConstBytes mine,
                                                       TimePoint deadline) override;
  Result<std::shared_ptr<CommonMemory>> share(size_t bytes, TimePoint deadline) override;
  Error run_on_host(HostOp op, std::function<void(Error)> ended) override;

 private:
  using Everyones = std::vector<std::vector<std::byte>>;

  Result<HostOps> sibling(const std::string& suffix);
  Result<Everyones> exchange_all(ConstBytes mine, TimePoint deadline);
  Result<Everyones> exchange_with(int peer, ConstBytes mine, TimePoint deadline);

  const int rank_;
  const int size_;
  const HostOps group_;
  const MakeSibling sibling_;
  std::mutex mutex_;
  std::map<std::string, HostOps> siblings_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
