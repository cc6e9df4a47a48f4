// DeferredReleaseOp: an Op that does not release its memory on a progress thread, unless no thread
// can be had for that. The last reference may be dropped on any thread.
#pragma once

#include <memory>
#include <utility>

#include "engine/context/task_pool.h"
#include "engine/op/op.h"
#include "engine/progress/progress_lock.h"

namespace ringdist {

// Freeing a tensor may need the GIL, which a progress thread must not take. If a thread that makes
// progress holds the last reference to an op, a task in the pool releases what the op held. That
// happens if nobody waits for the op, or if it has failed and its sends are still draining.
class DeferredReleaseOp final : public Op {
 public:
  // `pool` must outlive the op.
  DeferredReleaseOp(OpRequest&& request, TaskPool& pool) : Op(std::move(request)), pool_(pool) {}
  ~DeferredReleaseOp() {
    if (!in_progress_loop()) return;
    try {
      // Two references exist, here and in the task. The last one to go frees the memory.
      auto last = std::make_shared<Last>(std::move(request), std::move(device_work));
      // The pool lives: the Context owns both it and the progress engine.
      pool_.run([last = std::move(last)] {});
    } catch (...) {  // no thread could be started: the memory is freed here
    }
  }

 private:
  using Last = std::pair<OpRequest, std::shared_ptr<DeviceWork>>;

  TaskPool& pool_;
};

}  // namespace ringdist
