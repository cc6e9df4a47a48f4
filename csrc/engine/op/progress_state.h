// What all OpExecutions of a lane share, asked without a call. The Executor owns it; a test makes
// one, and moves its clock.
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
#include "engine/op/statistics.h"
#include "engine/op/store_mode_tuner.h"

namespace ringdist {

// The sends on their way: of each, whose it is and what keeps its memory alive. What comes home
// after its OpExecution has ended is dropped, but for the memory, which is let go then.
//
// Every call comes with the lane's driver token held.
class OpExecution;

// A segment of an edge, to the OpExecution that sends it.
struct SentSegment {
  OpExecution* run = nullptr;
  int step = 0;
  int target = 0;
  int64_t segment = 0;
};

class CompletionTable {
 public:
  // `turns`: how often each place has been used already; for tests.
  explicit CompletionTable(uint32_t turns = 0) : turns_(turns) {}

  // `memory`, which may be nobody's, is held until the ticket comes home.
  SendId issue(const SentSegment& what, std::shared_ptr<const void> memory) {
    if (free_.empty()) {
      entries_.emplace_back().turn = turns_;
      const auto slot = static_cast<uint32_t>(entries_.size() - 1);
      try {
        free_.reserve(entries_.capacity());  // complete() must not throw
      } catch (...) {
        entries_.pop_back();
        throw;
      }
      free_.push_back(slot);
    }
    const uint32_t slot = free_.back();
    free_.pop_back();
    Entry& entry = entries_[slot];
    entry.what = what;
    entry.memory = std::move(memory);
    entry.out = true;
    if (++entry.turn == 0) ++entry.turn;  // with slot 0 that would be kNoTicket
    return make(entry.turn, slot);
  }

  struct CompletedSend {
    SentSegment what;                    // of nobody's, where its OpExecution has ended
    std::shared_ptr<const void> memory;  // until the OpExecution has heard of it
  };
  // It has come home. Nothing for one that is not out: kNoTicket, or one that has been home before.
  std::optional<CompletedSend> complete(SendId send_id) {
    const auto slot = static_cast<uint32_t>(send_id);
    if (slot >= entries_.size()) return std::nullopt;
    Entry& entry = entries_[slot];
    if (send_id != make(entry.turn, slot) || !entry.out) return std::nullopt;
    entry.out = false;
    free_.push_back(slot);
    return CompletedSend{std::exchange(entry.what, {}), std::exchange(entry.memory, nullptr)};
  }

  // The OpExecution ends with sends on their way. `each` hears of them, and may bring none home.
  template <typename Each>
  void orphan(const OpExecution& run, const Each& each) {
    for (uint32_t slot = 0; slot < entries_.size(); ++slot) {
      Entry& entry = entries_[slot];
      if (entry.what.run != &run) continue;
      entry.what.run = nullptr;
      each(entry.what, make(entry.turn, slot));
    }
  }

  size_t out() const { return entries_.size() - free_.size(); }

 private:
  struct Entry {
    SentSegment what;
    std::shared_ptr<const void> memory;
    bool out = false;
    uint32_t turn = 0;  // how often the slot has been used: an old ticket is told from a new one
  };
  static SendId make(uint32_t turn, uint32_t slot) { return SendId{turn} << 32 | slot; }

  const uint32_t turns_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
};

// The steps that can go on, of all OpExecutions of a lane, in the order in which they were found
// out.
//
// Every call comes with the lane's driver token held.
class OpExecution;

struct WorkItem {
  OpExecution* run;
  int step;
};

class WorkQueue {
 public:
  void push(OpExecution& run, int step) { items_.push_back({&run, step}); }
  bool empty() const { return next_ == items_.size(); }
  WorkItem pop() {
    const WorkItem out = items_[next_++];
    if (empty() || next_ == kMostPopped) drop_popped();
    return out;
  }
  // The OpExecution ends.
  void forget(const OpExecution& run) {
    drop_popped();
    std::erase_if(items_, [&run](const WorkItem& item) { return item.run == &run; });
  }

 private:
  static constexpr size_t kMostPopped = 1024;

  void drop_popped() {
    items_.erase(items_.begin(), items_.begin() + static_cast<ptrdiff_t>(next_));
    next_ = 0;
  }

  std::vector<WorkItem> items_;  // its memory stays
  size_t next_ = 0;              // those before have been taken
};

struct ProgressState {
  ProgressState(Statistics& statistics, int64_t memory_limit)
      : statistics(statistics), grants(memory_limit) {}

  TimePoint now = Clock::now();  // the only clock of Executor, Group and OpExecution
  Statistics& statistics;
  // Of what the driver makes and frees for each op.
  FreeListResource memory;
  GrantBudget grants;
  CompletionTable completions;
  WorkQueue work;
  StoreModeTuner stores;
  std::shared_ptr<TraceRecorder> recorder;  // null: nothing is recorded
  bool any_ended = false;                   // some Group has a OpExecution to free
  const std::shared_ptr<ScratchPool> scratch = std::make_shared<ScratchPool>();
};

}  // namespace ringdist
