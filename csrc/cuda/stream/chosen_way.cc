#include "cuda/stream/chosen_way.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace ringdist::gpu {

// As it goes to the others, which run the same build.
struct ChosenWay::Offer {
  std::array<uint8_t, 16> device;
  int32_t nccl_version;
  uint8_t shares_devices;
  std::array<char, 107> problem;  // as much of it as there is room for
};

namespace {

template <size_t kSize>
void put(const std::string& text, std::array<char, kSize>& out) {
  out.fill(0);
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), out.begin());
}

std::string rank_text(size_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

ChosenWay::ChosenWay(CudaApi& cuda, RunnerGroup& group, NcclFound nccl, Ways ways, Wanted wanted)
    : cuda_(cuda), group_(group), nccl_(std::move(nccl)), ways_(std::move(ways)), wanted_(wanted) {}

std::shared_ptr<Way> ChosenWay::way() const {
  std::lock_guard lock(mutex_);
  return way_;
}

void ChosenWay::set_way(std::shared_ptr<Way> way) {
  {
    std::lock_guard lock(mutex_);
    way_ = way;
    if (!aborted_) return;
  }
  way->abort();
}

std::string ChosenWay::obstacle_to_nccl(const std::vector<Offer>& offers) const {
  for (size_t rank = 0; rank < offers.size(); ++rank)
    if (offers[rank].nccl_version == 0)
      return rank_text(rank) + " has no NCCL (" + offers[rank].problem.data() + ")";
  if (std::ranges::all_of(offers, [](const Offer& one) { return one.shares_devices != 0; }))
    return "";
  for (size_t a = 0; a < offers.size(); ++a)
    for (size_t b = a + 1; b < offers.size(); ++b)
      if (offers[a].device == offers[b].device)
        return rank_text(a) + " and " + rank_text(b) + " use the same device";
  return "";
}

Error ChosenWay::choose(int device, TimePoint deadline) {
  const auto identity = cuda_.identity(device);
  if (!identity.ok()) return identity.error();
  Offer mine{identity.value(), nccl_.version, nccl_.shares_devices, {}};
  put(nccl_.problem, mine.problem);
  std::vector<int> ranks(static_cast<size_t>(group_.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto all = group_.exchange(ranks, std::as_bytes(std::span(&mine, 1)), deadline);
  if (!all.ok()) return all.error();
  std::vector<Offer> offers(all.value().size());
  for (size_t rank = 0; rank < offers.size(); ++rank)
    std::memcpy(&offers[rank], all.value()[rank].data(), sizeof(Offer));
  const std::string obstacle = obstacle_to_nccl(offers);
  if (wanted_ == Wanted::kNccl && !obstacle.empty())
    return Error(ErrorKind::kNotSupported, "ringdist: NCCL is asked for, but " + obstacle);
  if (wanted_ != Wanted::kHost && obstacle.empty()) {
    set_way(ways_.nccl());
    return {};
  }
  if (group_.rank() == 0 && wanted_ == Wanted::kAny)
    log(LogLevel::kWarn, "tensors on devices go by way of the host: " + obstacle);
  set_way(ways_.host());
  return {};
}

Error ChosenWay::prepare(const DevicePlace& place, const Request& request, TimePoint deadline) {
  if (!way())
    if (Error error = choose(place.device, deadline)) return error;
  return way()->prepare(place, request, deadline);
}

Error ChosenWay::enqueue(const DeviceOp& op, Stream stream, Held& held) {
  const auto chosen = way();
  ringdist::check(chosen != nullptr, "an op that was not prepared");
  return chosen->enqueue(op, stream, held);
}

Error ChosenWay::check() {
  const auto chosen = way();
  return chosen ? chosen->check() : Error();
}

bool ChosenWay::captures() const {
  const auto chosen = way();
  return chosen && chosen->captures();
}

void ChosenWay::abort() {
  std::shared_ptr<Way> chosen;
  {
    std::lock_guard lock(mutex_);
    aborted_ = true;
    chosen = way_;
  }
  if (chosen) chosen->abort();
}

}  // namespace ringdist::gpu
