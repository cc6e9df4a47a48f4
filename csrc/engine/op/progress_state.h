// What all OpExecutions of a lane share, asked without a call. The Executor owns it; a test makes
// one, and moves its clock.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/free_list_resource.h"
#include "base/scratch_pool.h"
#include "base/trace_recorder.h"
#include "engine/op/completion_table.h"
#include "engine/op/flow_control.h"
#include "engine/op/statistics.h"
#include "engine/op/store_mode_tuner.h"
#include "engine/op/work_queue.h"

namespace ringdist {

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
