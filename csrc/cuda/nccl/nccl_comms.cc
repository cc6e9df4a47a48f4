#include "cuda/nccl/nccl_comms.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>

namespace ringdist::gpu {

// Message of agree_on_ids(). It is sent as raw bytes, because all ranks run the same build.
struct NcclComms::CommProposal {
  int32_t result;  // NcclResult of creating the ids
  Ids ids;
  std::array<char, 124> why;
};

namespace {

// Returns true if the keys are 0 to size - 1, each once.
bool are_all(const std::multiset<int32_t>& keys, int32_t size) {
  int32_t next = 0;
  return std::ranges::all_of(keys, [&](int32_t key) { return key == next++; }) && next == size;
}

// Interval of polling a non-blocking communicator.
constexpr auto kPause = std::chrono::microseconds(100);

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

Error NcclComms::has_ended() {
  return Error(ErrorKind::kAborted, "ringdist: NCCL: the group has ended");
}

NcclComms::~NcclComms() {
  for (const auto& [key, comm] : comms_) (void)nccl_.destroy(comm);
}

// The first rank sends the ids, or the reason why it has none, which becomes the error of all.
Result<NcclComms::Ids> NcclComms::agree_on_ids(const std::vector<int>& ranks, TimePoint deadline) {
  CommProposal mine{};
  if (ranks[0] == group_.rank()) {
    NcclResult result = NcclResult::kSuccess;
    for (NcclUniqueId& id : mine.ids)
      if (result == NcclResult::kSuccess) result = nccl_.unique_id(&id);
    mine.result = static_cast<int32_t>(result);
    if (result != NcclResult::kSuccess) {
      const std::string why = nccl_.describe(result, nullptr);
      std::copy_n(why.begin(), std::min(why.size(), mine.why.size() - 1), mine.why.begin());
    }
  }
  const auto all = group_.exchange(ranks, std::as_bytes(std::span(&mine, 1)), deadline);
  if (!all.ok()) return all.error();
  CommProposal first{};
  std::memcpy(&first, all.value()[0].data(), sizeof(CommProposal));
  if (first.result == static_cast<int32_t>(NcclResult::kSuccess)) return first.ids;
  return Error(ErrorKind::kSystem, "ringdist: NCCL on rank " + std::to_string(ranks[0]) +
                                       " has no id for a communicator: " + first.why.data());
}

Result<NcclComm> NcclComms::init(const NcclUniqueId& id, int size, int rank, TimePoint deadline) {
  const std::string what = "a communicator of " + std::to_string(size) + " ranks";
  NcclComm comm = nullptr;
  const NcclResult begun = nccl_.init_rank(&comm, size, id, rank);
  const Error error = goes_on(begun) ? await(comm, what, deadline) : failed(begun, comm, what);
  if (!error) return comm;
  if (comm != nullptr) (void)nccl_.abort(comm);
  return error;
}

Error NcclComms::keep(Key key, NcclComm comm) {
  std::lock_guard lock(mutex_);
  if (aborted_) {
    (void)nccl_.abort(comm);
    return has_ended();
  }
  comms_[key] = comm;
  return {};
}

Result<NcclComm> NcclComms::take_split(int device, TimePoint deadline) {
  const auto mine = std::byte{split_->device() == device};
  const auto all = group_.exchange(ranks_with(group_, kNoPeer), std::span(&mine, 1), deadline);
  if (!all.ok()) return all.error();
  // Used for the first device only. If nobody takes it, it is aborted at the end of this scope.
  const auto split = std::exchange(split_, nullptr);
  const bool fits = std::ranges::all_of(
      all.value(), [](const auto& theirs) { return theirs.front() == std::byte{true}; });
  return fits ? split->take() : nullptr;
}

Result<NcclComm> NcclComms::for_all(int device, TimePoint deadline) {
  if (split_) {
    const auto comm = take_split(device, deadline);
    if (!comm.ok() || comm.value() != nullptr) return comm;
  }
  const auto ids = agree_on_ids(ranks_with(group_, kNoPeer), deadline);
  if (!ids.ok()) return ids.error();
  return init(ids.value()[0], group_.size(), group_.rank(), deadline);
}

Result<NcclComm> NcclComms::split_off(int device, SplitPart part, TimePoint deadline) {
  const std::string what = "ncclCommSplit for " + std::to_string(part.size) + " ranks";
  const auto calls = hold();
  const NcclComm parent = find(device, kNoPeer, Use::kCollectives);
  if (parent == nullptr) return has_ended();
  NcclComm out = nullptr;
  const NcclResult begun = nccl_.split(parent, part.color, part.key, &out);
  Error error = goes_on(begun) ? await(parent, what, deadline) : failed(begun, parent, what);
  if (!error) error = await(out, what, deadline);
  if (!error) return out;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(comms_, [&](const auto& one) { return one.second == parent; });
  }
  (void)nccl_.abort(parent);  // must come first, because until then NCCL may write to `out`
  if (out != nullptr) (void)nccl_.abort(out);
  return error;
}

Result<std::shared_ptr<SplitComm>> NcclComms::split(const std::vector<int>& ranks,
                                                    TimePoint deadline) {
  const SplitPart mine = part_of(group_.rank(), group_.size(), ranks);
  const auto all =
      group_.exchange(ranks_with(group_, kNoPeer), std::as_bytes(std::span(&mine, 1)), deadline);
  if (!all.ok()) return all.error();
  std::vector<SplitPart> parts(all.value().size());
  for (size_t i = 0; i < parts.size(); ++i)
    std::memcpy(&parts[i], all.value()[i].data(), sizeof(SplitPart));
  if (Error error = check_parts(parts)) return error;
  const int device = first_device_.value();
  const auto comm = split_off(device, mine, deadline);
  if (!comm.ok()) return comm.error();
  auto out = std::make_shared<SplitComm>(nccl_, comm.value(), device);
  // A rank continues only if all ranks have their part. If a rank has failed, the group ends
  // through this exchange.
  const std::byte good{1};
  const auto done = group_.exchange(ranks_with(group_, kNoPeer), std::span(&good, 1), deadline);
  if (!done.ok()) return done.error();
  return std::ranges::count(ranks, group_.rank()) > 0 ? std::move(out) : nullptr;
}

Error NcclComms::make(int device, int peer, TimePoint deadline) {
  const bool alone = peer == kNoPeer;
  if (find(device, peer, alone ? Use::kCollectives : Use::kReceives) != nullptr) return {};
  if (aborted_) return has_ended();
  if (alone) {
    const auto comm = for_all(device, deadline);
    if (!comm.ok()) return comm.error();
    if (Error error = keep({device, peer, Use::kCollectives}, comm.value())) return error;
    if (!first_device_) first_device_ = device;
    return {};
  }
  const std::vector<int> ranks = ranks_with(group_, peer);
  const auto ids = agree_on_ids(ranks, deadline);
  if (!ids.ok()) return ids.error();
  const int size = static_cast<int>(ranks.size());
  // The first communicator is that in which the lower rank sends.
  const bool lower = group_.rank() < peer;
  const auto first = init(ids.value()[0], size, lower ? kSender : kReceiver, deadline);
  if (!first.ok()) return first.error();
  const auto second = init(ids.value()[1], size, lower ? kReceiver : kSender, deadline);
  if (!second.ok()) {
    (void)nccl_.abort(first.value());
    return second.error();
  }
  const Error error = keep({device, peer, Use::kSends}, lower ? first.value() : second.value());
  const Error other = keep({device, peer, Use::kReceives}, lower ? second.value() : first.value());
  return error ? error : other;
}

NcclComm NcclComms::find(int device, int peer, Use use) const {
  std::lock_guard lock(mutex_);
  const auto it = comms_.find({device, peer, use});
  return it == comms_.end() ? nullptr : it->second;
}

// Locked, because a query also completes pending work, which only one thread may do at a time.
NcclResult NcclComms::ask(NcclComm comm, NcclResult& state) const {
  std::lock_guard lock(mutex_);
  return nccl_.async_error(comm, &state);
}

// Polls, because NCCL has no way to wait for a non-blocking communicator.
Error NcclComms::await(NcclComm comm, std::string_view what, TimePoint deadline) const {
  for (;;) {
    NcclResult state = NcclResult::kInProgress;
    const NcclResult asked = ask(comm, state);
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

Error NcclComms::error_of(NcclResult result, NcclComm comm, std::string_view what,
                          TimePoint deadline) const {
  if (result == NcclResult::kSuccess) return {};
  if (result != NcclResult::kInProgress) return failed(result, comm, what);
  return await(comm, what, deadline);
}

Error NcclComms::check() {
  std::lock_guard lock(mutex_);
  for (const auto& [key, comm] : comms_) {
    NcclResult state = NcclResult::kSuccess;
    const NcclResult asked = nccl_.async_error(comm, &state);
    const NcclResult result = asked == NcclResult::kSuccess ? state : asked;
    if (result == NcclResult::kSuccess || result == NcclResult::kInProgress) continue;
    const auto [device, peer, use] = key;
    if (use == Use::kCollectives)
      return failed(result, comm, "the communicator of device " + std::to_string(device));
    return failed(result, comm, "sends and receives with rank " + std::to_string(peer)).blame(peer);
  }
  return {};
}

void NcclComms::abort() {
  aborted_ = true;  // a thread that waits with calls_ locked gives up
  const auto calls = hold();
  // With calls_ locked, no thread is within a call for a communicator that is freed here.
  std::map<Key, NcclComm> ended;
  std::lock_guard lock(mutex_);
  ended.swap(comms_);
  for (const auto& [key, comm] : ended) (void)nccl_.abort(comm);
}

SplitPart part_of(int own, int of, const std::vector<int>& ranks) {
  const auto at = std::ranges::find(ranks, own);
  if (at == ranks.end()) return {of + own, 0, 1};
  return {std::ranges::min(ranks), static_cast<int32_t>(at - ranks.begin()),
          static_cast<int32_t>(ranks.size())};
}

Error check_parts(const std::vector<SplitPart>& parts) {
  std::map<int32_t, std::multiset<int32_t>> keys;  // by color
  for (const SplitPart& part : parts) keys[part.color].insert(part.key);
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const auto [color, key, size] = parts[rank];
    const auto& there = keys[color];
    if (are_all(there, size)) continue;
    return Error(ErrorKind::kInvalidArgument,
                 "ringdist: split_group: ranks disagree on the parts: rank " +
                     std::to_string(rank) + " is in one of " + std::to_string(size) +
                     " ranks, the lowest being " + std::to_string(color) +
                     ", but not each of those has called the same: " +
                     std::to_string(there.size()) + " name one with this rank");
  }
  return {};
}

}  // namespace ringdist::gpu
