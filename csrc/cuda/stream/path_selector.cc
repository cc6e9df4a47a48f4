#include "cuda/stream/path_selector.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "cuda/nccl/op_peers.h"

namespace ringdist::gpu {

PathSelector::PathSelector(CudaApi& cuda, RunnerDelegate& group, NcclInfo nccl, PathFactories ways,
                           Wanted wanted)
    : cuda_(cuda),
      group_(group),
      nccl_(std::move(nccl)),
      paths_(std::move(ways)),
      wanted_(wanted) {}

std::shared_ptr<DevicePath> PathSelector::path_of(const OpSpec& request) const {
  std::lock_guard lock(mutex_);
  const auto it = chosen_.find(key_of(request));
  return it == chosen_.end() ? nullptr : it->second;
}

std::vector<std::shared_ptr<DevicePath>> PathSelector::made() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<DevicePath>> out;
  for (const auto& [nccl, way] : made_) out.push_back(way);
  return out;
}

void PathSelector::use(int peer, bool nccl) {
  std::shared_ptr<DevicePath> way;
  {
    std::lock_guard lock(mutex_);
    std::shared_ptr<DevicePath>& made = made_[nccl];
    if (!made) made = (nccl ? paths_.nccl : paths_.host)(group_);
    chosen_[peer] = made;
    if (!aborted_) return;
    way = made;
  }
  // Without the mutex, which is a leaf lock: abort() of a path takes locks.
  way->abort();
}

Result<bool> PathSelector::agree_on_nccl(int device, const std::vector<int>& ranks,
                                         TimePoint deadline) {
  const auto mine = DeviceCapabilities::make(cuda_, device, nccl_);
  if (!mine.ok()) return mine.error();
  const auto all = group_.exchange(ranks, std::as_bytes(std::span(&mine.value(), 1)), deadline);
  if (!all.ok()) return all.error();
  std::vector<DeviceCapabilities> offers(all.value().size());
  for (size_t i = 0; i < offers.size(); ++i)
    std::memcpy(&offers[i], all.value()[i].data(), sizeof(DeviceCapabilities));
  const std::string obstacle = why_not_nccl(ranks, offers);
  if (wanted_ == Wanted::kNccl && !obstacle.empty())
    return Error(ErrorKind::kNotSupported, "ringdist: NCCL is asked for, but " + obstacle);
  if (group_.rank() == ranks[0] && wanted_ == Wanted::kAny && !obstacle.empty())
    log(LogLevel::kWarn,
        "tensors on devices go by way of the host, not by links between them (`python -m "
        "torch_ringdist info` shows those): " +
            obstacle);
  return wanted_ != Wanted::kHost && obstacle.empty();
}

// With two ranks, one choice serves all ops. Their first ops may differ, because one rank may send
// before a collective that the other rank calls before it receives.
int PathSelector::key_of(const OpSpec& request) const {
  return group_.size() == 2 ? kNoPeer : peer_of(request);
}

Error PathSelector::choose(int device, int peer, TimePoint deadline) {
  const auto nccl = agree_on_nccl(device, ranks_with(group_, peer), deadline);
  if (!nccl.ok()) return nccl.error();
  use(peer, nccl.value());
  return {};
}

Error PathSelector::prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) {
  if (request.envelope && request.envelope->peer == Envelope::kAnySource)
    return Error(ErrorKind::kNotSupported,
                 "ringdist: recv: a source must be named for tensors on devices");
  if (!path_of(request))
    if (Error error = choose(place.device, key_of(request), deadline)) return error;
  return path_of(request)->prepare(place, request, deadline);
}

// The new group makes its own choice. If it chooses NCCL, it uses the communicator that was split
// off.
Result<MakeDevicePath> PathSelector::split(const std::vector<int>& ranks, TimePoint deadline) {
  std::shared_ptr<DevicePath> by_nccl;
  {
    std::lock_guard lock(mutex_);
    const auto it = made_.find(true);
    if (it == made_.end()) return MakeDevicePath();
    by_nccl = it->second;
  }
  auto split = by_nccl->split(ranks, deadline);
  if (!split.ok() || !split.value()) return split;
  return MakeDevicePath([&cuda = cuda_, nccl = nccl_,
                         ways = PathFactories{split.value(), paths_.host},
                         wanted = wanted_](RunnerDelegate& group) {
    return std::make_shared<PathSelector>(cuda, group, nccl, ways, wanted);
  });
}

Error PathSelector::enqueue(const DeviceOp& op, Stream stream, KeptAlive& held) {
  const auto way = path_of(op.request);
  ringdist::check(way != nullptr, "an op that was not prepared");
  return way->enqueue(op, stream, held);
}

Error PathSelector::check() {
  for (const auto& way : made())
    if (Error error = way->check()) return error;
  return {};
}

Error PathSelector::captured(const OpSpec& request) const {
  const auto way = path_of(request);
  ringdist::check(way != nullptr, "an op that was not prepared");
  return way->captured(request);
}

void PathSelector::end() {
  for (const auto& way : made()) way->end();
}

void PathSelector::abort() {
  {
    std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  for (const auto& way : made()) way->abort();
}

}  // namespace ringdist::gpu
