// Coalescing regions: what a thread calls between startCoalescing() and endCoalescing() is
// collected and starts as a whole, so that no call waits for another one, and runs of allreduces
// become one op. Each thread has its own; any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/thread_annotations.h"
#include "torch/ops/call.h"
#include "torch/work/combined_work.h"

namespace ringdist {

class Coalescing {
 public:
  struct RegionSubmitter {
    // Called with all calls of the region, as they will be submitted.
    std::function<void(const std::vector<Call>&)> prepare;
    std::function<c10::intrusive_ptr<c10d::Work>(Call)> submit;
  };

  Coalescing(int rank, std::shared_ptr<Hooks> hooks) : rank_(rank), hooks_(std::move(hooks)) {}

  // Opens a region on this thread. `starter` starts the calls, for as long as the region's Work
  // lives. A region that is still open (an exception came between) is dropped.
  void begin(RegionSubmitter starter);
  // Takes the call if this thread has an open region, and returns a Work that ends with the
  // region's; else null.
  c10::intrusive_ptr<c10d::Work> collect(Call& call);
  // Adds what has been started otherwise to this thread's region, if it has one.
  void adopt(const c10::intrusive_ptr<c10d::Work>& started);
  // Starts what was collected; throws what hindered that. A thread without a region gets a Work of
  // nothing. Asking the region's Work for its outcome ends the region, too, but for the first
  // is_completed().
  c10::intrusive_ptr<c10d::Work> end();
  // Ends this thread's region without starting anything: one of its calls was refused. Its Work
  // fails.
  void drop();

 private:
  struct Region {
    std::mutex mutex;
    bool open RINGDIST_GUARDED_BY(mutex) = true;
    std::vector<Call> calls RINGDIST_GUARDED_BY(mutex);
    CombinedWork::Parts started RINGDIST_GUARDED_BY(mutex);
    // Of each call, since hooks tell calls apart by their Works.
    std::vector<c10::intrusive_ptr<CombinedWork>> members RINGDIST_GUARDED_BY(mutex);
    // Holds the region until it has run.
    c10::intrusive_ptr<CombinedWork> work RINGDIST_GUARDED_BY(mutex);
  };
  CompletionPtr completion() const;
  std::shared_ptr<Region> take();
  std::shared_ptr<Region> find();
  static CombinedWork::Parts run(Region& region, const RegionSubmitter& starter);

  const int rank_;
  const std::shared_ptr<Hooks> hooks_;
  std::atomic<int> count_{0};  // of regions_: spares the others the lock
  std::mutex mutex_;           // before a region's
  std::map<std::thread::id, std::shared_ptr<Region>> regions_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
