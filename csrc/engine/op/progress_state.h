// State that all OpExecutions of a lane share: clock, completions, work queue, grant budget and
// memory. Members are public so that access needs no virtual call. The Dispatcher owns it; tests
// create their own and move its clock.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/free_list_resource.h"
#include "base/payload.h"
#include "base/scratch_pool.h"
#include "base/trace_recorder.h"
#include "engine/op/flow_control.h"
#include "engine/op/op_log.h"
#include "engine/op/op_statistics.h"
#include "engine/op/statistics.h"
#include "engine/op/store_mode_tuner.h"

namespace ringdist {

// Completions refer to executions by pointer, so an execution detaches its sends when it ends.
class OpExecution;

// Identifies a sent segment: the execution, its step, the index of the target, and the segment.
struct SentSegment {
  OpExecution* run = nullptr;
  int step = 0;
  int target = 0;
  int64_t segment = 0;
};

// Table of the sends in flight. For each send it has the segment and a reference that keeps the
// payload's memory alive. If the OpExecution has ended, the completion only releases the memory.
//
// A SendId consists of a slot and a count of its uses, so that an outdated id is recognized.
class CompletionTable {
 public:
  // `turns` is the initial use count of every slot; tests use it to reach the wrap-around.
  explicit CompletionTable(uint32_t turns = 0) : turns_(turns) {}

  // Returns a new id. `memory` may be null; it is released when the send completes. May throw
  // std::bad_alloc; then nothing was issued.
  SendId issue(const SentSegment& what, std::shared_ptr<const void> memory) {
    if (free_.empty()) {
      if (free_.capacity() <= pending_.size()) free_.reserve(2 * pending_.size() + 8);
      pending_.emplace_back().turn = turns_;
      free_.push_back(static_cast<uint32_t>(pending_.size() - 1));  // has room, as in complete()
    }
    const uint32_t slot = free_.back();
    free_.pop_back();
    Pending& pending = pending_[slot];
    pending.what = what;
    pending.memory = std::move(memory);
    pending.out = true;
    if (++pending.turn == 0) ++pending.turn;  // with slot 0 this would be kNoSendId
    return make(pending.turn, slot);
  }

  struct CompletedSend {
    SentSegment what;                    // `run` is null if its OpExecution has ended
    std::shared_ptr<const void> memory;  // to be released after the OpExecution has been notified
  };
  // Removes a send that has completed. Returns nothing for kNoSendId and for ids that have
  // completed before. Throws nothing.
  std::optional<CompletedSend> complete(SendId send_id, TimePoint now = {}) {
    const auto slot = static_cast<uint32_t>(send_id);
    if (slot >= pending_.size()) return std::nullopt;
    Pending& pending = pending_[slot];
    if (send_id != make(pending.turn, slot) || !pending.out) return std::nullopt;
    pending.out = false;
    free_.push_back(slot);
    if (pending.traffic != nullptr) std::exchange(pending.traffic, nullptr)->end_send(now);
    return CompletedSend{std::exchange(pending.what, {}), std::exchange(pending.memory, nullptr)};
  }

  // Measures a send that is about to start, until it completes. `traffic` must stay valid until
  // then.
  void measure(SendId send_id, PeerTraffic& traffic, TimePoint now) {
    traffic.begin_send(now);
    pending_[static_cast<uint32_t>(send_id)].traffic = &traffic;
  }

  // Detaches all sends of an OpExecution that ends. Calls `each` with every one of them; `each`
  // must not complete any.
  template <typename Each>
  void orphan(const OpExecution& run, const Each& each) {
    for (uint32_t slot = 0; slot < pending_.size(); ++slot) {
      Pending& pending = pending_[slot];
      if (pending.what.run != &run) continue;
      pending.what.run = nullptr;
      each(pending.what, make(pending.turn, slot));
    }
  }

  // Returns the number of sends in flight.
  size_t out() const { return pending_.size() - free_.size(); }

 private:
  struct Pending {
    SentSegment what;
    std::shared_ptr<const void> memory;
    PeerTraffic* traffic = nullptr;  // measures the send, unless null
    bool out = false;                // in flight
    uint32_t turn = 0;               // number of uses of the slot, part of the id
  };
  // Packs the use count into the upper and the slot into the lower 32 bits.
  static SendId make(uint32_t turn, uint32_t slot) { return SendId{turn} << 32 | slot; }

  const uint32_t turns_;  // initial use count of new slots
  std::vector<Pending> pending_;
  // Slots that are not in use. It has capacity for all slots, so that complete() cannot throw.
  std::vector<uint32_t> free_;
};

// Work items refer to executions by pointer, so an execution removes its items when it ends.
class OpExecution;

// A step of an execution that may be able to progress.
struct WorkItem {
  OpExecution* run;
  int step;
};

// FIFO of the steps of all OpExecutions of a lane that may be able to progress. An execution queues
// a step at most once at a time.
class WorkQueue {
 public:
  void push(OpExecution& run, int step) { items_.push_back({&run, step}); }
  bool empty() const { return next_ == items_.size(); }
  // Removes and returns the oldest item. The queue must not be empty.
  WorkItem pop() {
    const WorkItem out = items_[next_++];
    if (empty() || next_ == kMostPopped) drop_popped();
    return out;
  }
  // Drops all items of an OpExecution that ends.
  void forget(const OpExecution& run) {
    drop_popped();
    std::erase_if(items_, [&run](const WorkItem& item) { return item.run == &run; });
  }

 private:
  // Popped items that may remain before the vector is compacted.
  static constexpr size_t kMostPopped = 1024;

  void drop_popped() {
    items_.erase(items_.begin(), items_.begin() + static_cast<ptrdiff_t>(next_));
    next_ = 0;
  }

  std::vector<WorkItem> items_;  // keeps its capacity
  size_t next_ = 0;              // items before this index have been popped
};

// Shared state of a lane; see the head of this file.
struct ProgressState {
  ProgressState(Statistics& statistics, int64_t memory_limit)
      : statistics(statistics), grants(memory_limit) {}

  // Clock of Dispatcher, Group and OpExecution; set once per iteration.
  TimePoint now = Clock::now();
  Statistics& statistics;
  // Allocator for small objects that are created and freed with each op.
  FreeListResource memory;
  OpLog log;
  OpStatistics destroyed;    // statistics of groups that have been destroyed
  PeerTrafficTable traffic;  // data exchanged with all peers
  GrantBudget grants;        // memory that may be granted to senders
  CompletionTable completions;
  WorkQueue work;                           // steps to run
  StoreModeTuner stores;                    // chooses how large outputs are stored
  std::shared_ptr<TraceRecorder> recorder;  // null: tracing is off
  bool any_ended = false;                   // a Group has ended executions to free
  const std::shared_ptr<ScratchPool> scratch = std::make_shared<ScratchPool>();
};

}  // namespace ringdist
