// Internal types of FakeNccl.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "support/fake_nccl.h"
#include "support/nccl_types_of.h"

namespace ringdist {

struct FakeNccl::Comm {
  std::shared_ptr<Ring> ring;
  int rank = 0;
  bool aborted = false;
  gpu::NcclResult broken = gpu::NcclResult::kSuccess;
  size_t collectives = 0;  // number of collectives called
  size_t splits = 0;
  bool is_split = false;  // a split is in progress until all ranks have called it
  int lag = 0;            // number of queries that still get "in progress"
};

struct FakeNccl::Part {
  enum Kind { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kSend, kRecv };

  Kind kind;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  size_t count = 0;
  gpu::NcclType type = gpu::NcclType::kUint8;
  gpu::NcclReduce op = gpu::NcclReduce::kSum;
  int root = 0;  // or the peer of a send or receive
  std::shared_ptr<Comm> comm = nullptr;
  void* stream = nullptr;
  size_t number = 0;  // call number of a collective
  bool done = false;

  size_t bytes() const { return count * dtype_size(dtype_of(type)); }
  bool like(const Part& other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op &&
           root == other.root;
  }
};

// One rank's call of split.
struct FakeNccl::Split {
  std::weak_ptr<Comm> comm;  // weak, because the ring of this Comm holds the Split
  int color;
  int key;
  gpu::NcclComm* out;
};

struct FakeNccl::Ring {
  size_t size = 0;
  std::set<int> joined;
  std::map<size_t, std::vector<PartPtr>> collectives;                  // by call number
  std::map<size_t, std::vector<Split>> splits;                         // by call number
  std::map<std::pair<int, int>, std::deque<PartPtr>> sends, receives;  // by sender and receiver

  // Removes the pending calls of a rank that aborts. They never meet a counterpart, so their
  // memory may be freed.
  void drop(const std::shared_ptr<Comm>& departed) {
    const auto is_of = [&](const PartPtr& part) { return part && part->comm == departed; };
    for (auto& [number, parts] : collectives) std::ranges::replace_if(parts, is_of, PartPtr());
    for (auto* waiting : {&sends, &receives})
      for (auto& [pair, parts] : *waiting) std::erase_if(parts, is_of);
    for (auto& [number, parts] : splits)
      std::erase_if(parts, [&](const Split& part) { return part.comm.lock() == departed; });
  }
};

}  // namespace ringdist
