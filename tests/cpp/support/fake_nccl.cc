#include "support/fake_nccl.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernel/reduce.h"
#include "support/fake_nccl_parts.h"

namespace ringdist {

using gpu::NcclComm;
using gpu::NcclReduce;
using gpu::NcclResult;
using gpu::NcclType;
using gpu::NcclUniqueId;

namespace {

// State of the current group of calls, per thread.
thread_local int group_depth = 0;
thread_local std::vector<std::shared_ptr<void>> grouped_parts;
thread_local NcclResult group_result =
    NcclResult::kSuccess;  // first failure of a call in the group

}  // namespace

void FakeNccl::fail_next(const std::string& call, NcclResult result) {
  std::lock_guard lock(mutex_);
  fails_[call] = result;
}

void FakeNccl::break_comm(NcclComm comm, NcclResult result) {
  std::lock_guard lock(mutex_);
  find(comm)->broken = result;
}

size_t FakeNccl::alive() const {
  std::lock_guard lock(mutex_);
  return comms_.size();
}

int FakeNccl::calls(const std::string& call) const {
  std::lock_guard lock(mutex_);
  const auto it = calls_.find(call);
  return it == calls_.end() ? 0 : it->second;
}

std::shared_ptr<FakeNccl::Comm> FakeNccl::find(NcclComm comm) const {
  const auto it = comms_.find(comm);
  return it == comms_.end() ? nullptr : it->second;
}

NcclResult FakeNccl::enter(const std::string& call) {
  ++calls_[call];
  if (const auto at = fails_at_.find(all_calls_++); at != fails_at_.end()) return at->second;
  const auto it = fails_.find(call);
  if (it == fails_.end()) return NcclResult::kSuccess;
  const NcclResult result = it->second;
  fails_.erase(it);
  return result;
}

std::string FakeNccl::describe(NcclResult result, NcclComm) const {
  return "NCCL's error " + std::to_string(static_cast<int>(result));
}

NcclResult FakeNccl::unique_id(NcclUniqueId* out) {
  std::lock_guard lock(mutex_);
  if (const NcclResult result = enter("unique_id"); result != NcclResult::kSuccess) return result;
  const std::string id = "fake " + std::to_string(++ids_);
  std::ranges::copy(id, out->internal.begin());
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::init_rank(NcclComm* out, int size, const NcclUniqueId& id, int rank) {
  std::lock_guard lock(mutex_);
  if (const NcclResult result = enter("init_rank"); result != NcclResult::kSuccess) return result;
  auto& ring = rings_[id.internal.data()];
  if (!ring) ring = std::make_shared<Ring>();
  ring->size = static_cast<size_t>(size);
  EXPECT_TRUE(rank >= 0 && rank < size && ring->joined.insert(rank).second) << "rank " << rank;
  *out = make_comm(ring, rank);
  return NcclResult::kInProgress;
}

NcclComm FakeNccl::make_comm(const std::shared_ptr<Ring>& ring, int rank) {
  auto comm = std::make_shared<Comm>();
  comm->ring = ring;
  comm->rank = rank;
  comm->lag = lag_;
  const NcclComm out = comm.get();
  comms_[out] = std::move(comm);
  return out;
}

NcclResult FakeNccl::split(NcclComm comm, int color, int key, NcclComm* out) {
  std::lock_guard lock(mutex_);
  if (const NcclResult result = enter("split"); result != NcclResult::kSuccess) return result;
  const auto mine = find(comm);
  if (!mine || color < 0) return NcclResult::kInvalidArgument;
  EXPECT_EQ(mine->ring->joined.size(), mine->ring->size) << "not ready yet";
  EXPECT_FALSE(mine->is_split) << "by another call";
  mine->is_split = true;
  mine->lag = lag_;
  *out = nullptr;
  const size_t number = mine->splits++;
  auto& all = mine->ring->splits[number];
  all.push_back({mine, color, key, out});
  if (all.size() == mine->ring->size) {
    finish(std::move(all));
    mine->ring->splits.erase(number);
  }
  return NcclResult::kInProgress;
}

void FakeNccl::finish(std::vector<Split> all) {
  const auto place = [](const Split& one) { return std::pair(one.color, one.key); };
  std::ranges::sort(all, {}, place);
  std::shared_ptr<Ring> ring;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == 0 || all[i].color != all[i - 1].color) ring = std::make_shared<Ring>();
    const int rank = static_cast<int>(ring->size++);
    ring->joined.insert(rank);
    *all[i].out = make_comm(ring, rank);
    if (const auto comm = all[i].comm.lock()) comm->is_split = false;
  }
}

NcclResult FakeNccl::async_error(NcclComm comm, NcclResult* out) {
  std::lock_guard lock(mutex_);
  if (const NcclResult result = enter("async_error"); result != NcclResult::kSuccess) return result;
  const auto mine = find(comm);
  if (!mine) return NcclResult::kInvalidArgument;
  const bool complete =
      mine->ring->joined.size() == mine->ring->size && !mine->is_split && mine->lag-- <= 0;
  *out = mine->broken != NcclResult::kSuccess ? mine->broken
         : complete                           ? NcclResult::kSuccess
                                              : NcclResult::kInProgress;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::let_go(NcclComm comm, bool aborts) {
  std::lock_guard lock(mutex_);
  const auto mine = find(comm);
  EXPECT_TRUE(mine) << "a communicator that is not there";
  if (!mine) return NcclResult::kInvalidArgument;
  mine->aborted = aborts;
  if (aborts) mine->ring->drop(mine);
  comms_.erase(comm);
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::destroy(NcclComm comm) { return let_go(comm, false); }
NcclResult FakeNccl::abort(NcclComm comm) { return let_go(comm, true); }

NcclResult FakeNccl::group_start() {
  {
    std::lock_guard lock(mutex_);
    if (const NcclResult result = enter("group_start"); result != NcclResult::kSuccess)
      return result;
  }
  ++group_depth;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::group_end() {
  EXPECT_GT(group_depth, 0) << "group_end() without group_start()";
  if (--group_depth > 0) return NcclResult::kSuccess;
  std::vector<PartPtr> parts;
  for (const auto& part : std::exchange(grouped_parts, {}))
    parts.push_back(std::static_pointer_cast<Part>(part));
  const NcclResult called = std::exchange(group_result, NcclResult::kSuccess);
  {
    std::lock_guard lock(mutex_);
    if (const NcclResult result = enter("group_end"); result != NcclResult::kSuccess) return result;
  }
  if (called != NcclResult::kSuccess) return called;
  if (!parts.empty()) enqueue(std::move(parts));
  return NcclResult::kInProgress;
}

NcclResult FakeNccl::check(Part& part, NcclComm comm, void* stream) {
  static const char* const kNames[] = {"all_reduce",     "broadcast", "reduce", "all_gather",
                                       "reduce_scatter", "send",      "recv"};
  std::lock_guard lock(mutex_);
  const NcclResult result = enter(kNames[static_cast<int>(part.kind)]);
  if (result != NcclResult::kSuccess) return result;
  part.comm = find(comm);
  part.stream = stream;
  if (!part.comm || stream == nullptr) return NcclResult::kInvalidArgument;
  EXPECT_EQ(part.comm->ring->joined.size(), part.comm->ring->size) << "not ready yet";
  EXPECT_FALSE(part.comm->is_split) << "in progress";
  const int size = static_cast<int>(part.comm->ring->size);
  if (part.root < 0 || part.root >= size) return NcclResult::kInvalidArgument;
  const bool fp8 = part.type == NcclType::kFloat8E4M3 || part.type == NcclType::kFloat8E5M2;
  const bool scales_alone =
      size == 1 && part.op == NcclReduce::kAvg;  // NCCL has no kernel for this case
  return fp8 && (!has_fp8() || scales_alone) ? NcclResult::kInvalidArgument : NcclResult::kSuccess;
}

NcclResult FakeNccl::add(Part part, NcclComm comm, void* stream) {
  if (const NcclResult result = check(part, comm, stream); result != NcclResult::kSuccess) {
    if (group_depth > 0) group_result = result;
    return result;
  }
  const auto one = std::make_shared<Part>(std::move(part));
  if (group_depth > 0)
    grouped_parts.push_back(one);
  else
    enqueue({one});
  return NcclResult::kInProgress;  // the call does not block; async_error() reports its end
}

void FakeNccl::enqueue(std::vector<PartPtr> parts) {
  void* const stream = parts[0]->stream;
  {
    std::lock_guard lock(mutex_);
    for (const PartPtr& part : parts) {
      EXPECT_EQ(part->stream, stream) << "a group of two streams";
      part->comm->lag = lag_;
      if (part->kind != Part::kSend && part->kind != Part::kRecv)
        part->number = part->comm->collectives++;
    }
  }
  const auto came = std::make_shared<bool>(false);
  streams_.push(stream, {[this, parts = std::move(parts), came] {
                           std::lock_guard lock(mutex_);
                           if (!std::exchange(*came, true))
                             for (const PartPtr& part : parts) arrive(part);
                           return std::ranges::all_of(parts, [](const PartPtr& part) {
                             return part->done || part->comm->aborted;
                           });
                         },
                         {}});
}

void FakeNccl::arrive(const PartPtr& part) {
  if (part->comm->aborted) return;
  if (part->kind == Part::kSend || part->kind == Part::kRecv)
    meet(part);
  else
    join(part);
}

void FakeNccl::meet(const PartPtr& part) {
  Ring& ring = *part->comm->ring;
  const bool sends = part->kind == Part::kSend;
  const auto pair =
      sends ? std::pair(part->comm->rank, part->root) : std::pair(part->root, part->comm->rank);
  auto& others = sends ? ring.receives[pair] : ring.sends[pair];
  if (others.empty()) {
    (sends ? ring.sends[pair] : ring.receives[pair]).push_back(part);
    return;
  }
  const PartPtr other = others.front();
  others.pop_front();
  EXPECT_EQ(part->bytes(), other->bytes()) << "from " << pair.first << " to " << pair.second;
  const PartPtr& from = sends ? part : other;
  std::memcpy((sends ? other : part)->out, from->in, from->bytes());
  part->done = other->done = true;
}

void FakeNccl::join(const PartPtr& part) {
  Ring& ring = *part->comm->ring;
  std::vector<PartPtr>& all = ring.collectives[part->number];
  all.resize(ring.size);
  all[static_cast<size_t>(part->comm->rank)] = part;
  if (std::ranges::any_of(all, [](const PartPtr& one) { return one == nullptr; })) return;
  for (const PartPtr& one : all) EXPECT_TRUE(one->like(*part)) << "ranks call different things";
  compute(all);
  for (const PartPtr& one : all) one->done = true;
  ring.collectives.erase(part->number);
}

void FakeNccl::compute(const std::vector<PartPtr>& by_rank) {
  const Part& first = *by_rank[0];
  const size_t size = by_rank.size();
  const size_t bytes = first.bytes();
  const auto root = static_cast<size_t>(first.root);
  const bool scatters = first.kind == Part::kReduceScatter;
  std::vector<std::byte> result(scatters ? bytes * size : bytes);
  std::vector<const std::byte*> sources;
  for (const PartPtr& part : by_rank) sources.push_back(part->in);
  switch (first.kind) {
    case Part::kBroadcast:
      std::memcpy(result.data(), by_rank[root]->in, bytes);
      for (const PartPtr& part : by_rank) std::memcpy(part->out, result.data(), bytes);
      return;
    case Part::kAllGather:
      result.resize(bytes * size);
      for (size_t rank = 0; rank < size; ++rank)
        std::memcpy(result.data() + rank * bytes, by_rank[rank]->in, bytes);
      for (const PartPtr& part : by_rank) std::memcpy(part->out, result.data(), result.size());
      return;
    default:
      break;
  }
  ringdist::reduce(dtype_of(first.type), op_of(first.op), result.data(), sources,
                   scatters ? first.count * size : first.count, static_cast<int64_t>(size));
  for (size_t rank = 0; rank < size; ++rank) {
    if (first.kind == Part::kReduce && rank != root) continue;
    std::memcpy(by_rank[rank]->out, result.data() + (scatters ? rank * bytes : 0), bytes);
  }
}

NcclResult FakeNccl::all_reduce(const void* in, void* out, size_t count, NcclType type,
                                NcclReduce op, NcclComm comm, void* stream) {
  return add({Part::kAllReduce, static_cast<const std::byte*>(in), static_cast<std::byte*>(out),
              count, type, op},
             comm, stream);
}

NcclResult FakeNccl::broadcast(const void* in, void* out, size_t count, NcclType type, int root,
                               NcclComm comm, void* stream) {
  return add({Part::kBroadcast, static_cast<const std::byte*>(in), static_cast<std::byte*>(out),
              count, type, NcclReduce::kSum, root},
             comm, stream);
}

NcclResult FakeNccl::reduce(const void* in, void* out, size_t count, NcclType type, NcclReduce op,
                            int root, NcclComm comm, void* stream) {
  return add({Part::kReduce, static_cast<const std::byte*>(in), static_cast<std::byte*>(out), count,
              type, op, root},
             comm, stream);
}

NcclResult FakeNccl::all_gather(const void* in, void* out, size_t count, NcclType type,
                                NcclComm comm, void* stream) {
  return add({Part::kAllGather, static_cast<const std::byte*>(in), static_cast<std::byte*>(out),
              count, type},
             comm, stream);
}

NcclResult FakeNccl::reduce_scatter(const void* in, void* out, size_t count, NcclType type,
                                    NcclReduce op, NcclComm comm, void* stream) {
  return add({Part::kReduceScatter, static_cast<const std::byte*>(in), static_cast<std::byte*>(out),
              count, type, op},
             comm, stream);
}

NcclResult FakeNccl::send(const void* in, size_t count, NcclType type, int peer, NcclComm comm,
                          void* stream) {
  return add({Part::kSend, static_cast<const std::byte*>(in), nullptr, count, type,
              NcclReduce::kSum, peer},
             comm, stream);
}

NcclResult FakeNccl::recv(void* out, size_t count, NcclType type, int peer, NcclComm comm,
                          void* stream) {
  return add(
      {Part::kRecv, nullptr, static_cast<std::byte*>(out), count, type, NcclReduce::kSum, peer},
      comm, stream);
}

}  // namespace ringdist
