// An Op whose memory is never let go on a lane.
#pragma once

#include <memory>
#include <utility>

#include "engine/context/task_pool.h"
#include "engine/op/op.h"
#include "engine/progress/progress_lock.h"

namespace ringdist {

// Freeing a tensor may need the GIL, which a lane never takes. So where a lane is the last to hold
// an op - nobody waits for it, or it has failed and its sends drain - the pool lets go what it
// held.
class DeferredReleaseOp final : public Op {
 public:
  DeferredReleaseOp(OpRequest&& request, TaskPool& pool) : Op(std::move(request)), pool_(pool) {}
  ~DeferredReleaseOp() {
    if (!in_progress_loop()) return;
    try {
      // Freed by who comes last.
      auto last = std::make_shared<Last>(std::move(request), std::move(device_work));
      pool_.run([last = std::move(last)] {});  // the pool lives: its Context has the lane
    } catch (...) {                            // no thread is to be had: it is freed here
    }
  }

 private:
  using Last = std::pair<OpRequest, std::shared_ptr<DeviceWork>>;

  TaskPool& pool_;
};

}  // namespace ringdist
