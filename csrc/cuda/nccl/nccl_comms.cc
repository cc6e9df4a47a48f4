#include "cuda/nccl/nccl_comms.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <thread>

namespace ringdist::gpu {

// As it goes to the others, which run the same build.
struct NcclComms::Offer {
  int32_t result;  // NcclResult: whether the rank can take part
  NcclUniqueId id;
  std::array<char, 124> why;
};

namespace {

constexpr auto kPause = std::chrono::microseconds(100);
constexpr Duration kCallTime = std::chrono::seconds(10);  // for a call to be under way

Error has_ended() { return Error(ErrorKind::kAborted, "ringdist: NCCL: the group has ended"); }

ErrorKind kind_of(NcclResult result) {
  switch (result) {
    case NcclResult::kRemoteError:
      return ErrorKind::kPeerLost;
    case NcclResult::kInvalidArgument:
    case NcclResult::kInvalidUsage:
      return ErrorKind::kNotSupported;
    default:
      return ErrorKind::kSystem;
  }
}

}  // namespace

NcclComms::~NcclComms() {
  for (const auto& [key, comm] : comms_) (void)nccl_.destroy(comm);
}

std::vector<int> NcclComms::ranks_with(int peer) const {
  if (peer != kAll) return {std::min(group_.rank(), peer), std::max(group_.rank(), peer)};
  std::vector<int> out(static_cast<size_t>(group_.size()));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// The first rank's; an Error where any rank cannot take part.
Result<NcclUniqueId> NcclComms::agree_on_id(const std::vector<int>& ranks, TimePoint deadline) {
  Offer mine{};
  if (ranks[0] == group_.rank()) {
    const NcclResult result = nccl_.unique_id(&mine.id);
    mine.result = static_cast<int32_t>(result);
    if (result != NcclResult::kSuccess) {
      const std::string why = nccl_.describe(result, nullptr);
      std::copy_n(why.begin(), std::min(why.size(), mine.why.size() - 1), mine.why.begin());
    }
  }
  const auto all = group_.exchange(ranks, std::as_bytes(std::span(&mine, 1)), deadline);
  if (!all.ok()) return all.error();
  Offer first{};
  std::memcpy(&first, all.value()[0].data(), sizeof(Offer));
  if (first.result == static_cast<int32_t>(NcclResult::kSuccess)) return first.id;
  return Error(ErrorKind::kSystem, "ringdist: NCCL on rank " + std::to_string(ranks[0]) +
                                       " has no id for a communicator: " + first.why.data());
}

Error NcclComms::make(int device, int peer, TimePoint deadline) {
  {
    std::lock_guard lock(mutex_);
    if (comms_.contains({device, peer})) return {};
  }
  if (aborted_) return has_ended();
  const std::vector<int> ranks = ranks_with(peer);
  const auto id = agree_on_id(ranks, deadline);
  if (!id.ok()) return id.error();
  const std::string what = "a communicator of " + std::to_string(ranks.size()) + " ranks";
  const int rank = peer == kAll ? group_.rank() : rank_of_two(group_.rank(), peer);
  NcclComm comm = nullptr;
  const NcclResult begun = nccl_.init_rank(&comm, static_cast<int>(ranks.size()), id.value(), rank);
  Error error;
  if (begun != NcclResult::kSuccess && begun != NcclResult::kInProgress)
    error = failed(begun, comm, what);
  else
    error = await(comm, what, deadline);
  if (error) {
    if (comm != nullptr) (void)nccl_.abort(comm);
    return error;
  }
  std::lock_guard lock(mutex_);
  if (aborted_) {
    (void)nccl_.abort(comm);
    return has_ended();
  }
  comms_[{device, peer}] = comm;
  return {};
}

NcclComm NcclComms::find(int device, int peer) const {
  std::lock_guard lock(mutex_);
  const auto it = comms_.find({device, peer});
  return it == comms_.end() ? nullptr : it->second;
}

// Until what was begun last for the communicator has been.
Error NcclComms::await(NcclComm comm, std::string_view what, TimePoint deadline) const {
  for (;;) {
    NcclResult state = NcclResult::kInProgress;
    const NcclResult asked = nccl_.async_error(comm, &state);
    if (asked != NcclResult::kSuccess) return failed(asked, comm, what);
    if (state == NcclResult::kSuccess) return {};
    if (state != NcclResult::kInProgress) return failed(state, comm, what);
    if (aborted_) return has_ended();
    if (Clock::now() > deadline)
      return Error(ErrorKind::kTimeout, "ringdist: NCCL: " + std::string(what) +
                                            " was not there in time; a rank may not have come, or "
                                            "NCCL may not reach it (NCCL_SOCKET_IFNAME, "
                                            "NCCL_DEBUG=INFO)");
    std::this_thread::sleep_for(kPause);
  }
}

Error NcclComms::failed(NcclResult result, NcclComm comm, std::string_view what) const {
  return Error(kind_of(result),
               "ringdist: NCCL: " + std::string(what) + ": " + nccl_.describe(result, comm));
}

Error NcclComms::error_of(NcclResult result, NcclComm comm, std::string_view what) const {
  if (result == NcclResult::kSuccess) return {};
  if (result != NcclResult::kInProgress) return failed(result, comm, what);
  return await(comm, what, Clock::now() + kCallTime);
}

Error NcclComms::check() {
  std::lock_guard lock(mutex_);
  for (const auto& [key, comm] : comms_) {
    NcclResult state = NcclResult::kSuccess;
    const NcclResult asked = nccl_.async_error(comm, &state);
    const NcclResult result = asked == NcclResult::kSuccess ? state : asked;
    if (result == NcclResult::kSuccess || result == NcclResult::kInProgress) continue;
    const auto [device, peer] = key;
    const Error error =
        failed(result, comm,
               peer == kAll ? "the communicator of device " + std::to_string(device)
                            : "sends and receives with rank " + std::to_string(peer));
    return peer == kAll ? error : error.blame(peer);
  }
  return {};
}

void NcclComms::abort() {
  aborted_ = true;
  std::map<Key, NcclComm> ended;
  std::lock_guard lock(mutex_);
  ended.swap(comms_);
  for (const auto& [key, comm] : ended) (void)nccl_.abort(comm);
}

}  // namespace ringdist::gpu
