// Submits the calls of a group to its Communicator.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/thread_annotations.h"
#include "engine/communicator.h"
#include "torch/ops/call.h"
#include "torch/work/combined_work.h"
#include "torch/work/interrupts.h"

namespace ringdist {

// Coalescing regions: what a thread calls between startCoalescing() and endCoalescing() is
// collected and starts as a whole, so that no call waits for another one, and runs of allreduces
// become one op. Each thread has its own; any thread.
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

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Runs the calls of a group, or adds them to the coalescing region of their thread. Where a call
// cannot be made or started, that is thrown and ends the region. Any thread.
class CallSubmitter : public std::enable_shared_from_this<CallSubmitter> {
 public:
  // `devices`: those that the communicator has a runner for.
  explicit CallSubmitter(std::shared_ptr<Communicator> communicator,
                         c10::DeviceType devices = c10::DeviceType::CUDA);

  // The Call that `make` returns.
  template <typename Make>
  WorkPtr run(const Make& make) {
    return or_drop([&] {
      Call call = make();
      return start(call, make_completion(1));
    });
  }
  // The Calls that it returns, as one Work, of that type if they are several.
  template <typename Make>
  WorkPtr run_all(c10d::OpType type, const Make& make) {
    return or_drop([&] { return start_all(type, make()); });
  }
  // What is no Call and starts at once: a region only waits for it.
  template <typename Start>
  WorkPtr run_started(const Start& start) {
    return or_drop([&] {
      WorkPtr work = start();
      coalescing_.adopt(work);
      return work;
    });
  }

  // What this thread calls between the two is started by the second one. The region's Work does not
  // keep us: it fails if it is asked to start the calls when we are gone.
  void begin_region();
  WorkPtr end_region();

 private:
  // What is thrown ends this thread's region.
  template <typename Body>
  WorkPtr or_drop(const Body& body) {
    const ReturnsToPython gate;
    try {
      return body();
    } catch (...) {
      coalescing_.drop();
      throw;
    }
  }

  CompletionPtr make_completion(size_t calls) const {
    return std::make_shared<Completion>(communicator_->hooks(), calls);
  }
  // Submits it, or adds it to this thread's region.
  WorkPtr start(Call& call, const CompletionPtr& completion);
  WorkPtr start_all(c10d::OpType type, std::vector<Call> calls);
  WorkPtr submit(Call call);
  // Has made what calls on devices need, before the first of them is submitted.
  void prepare(const std::vector<Call>& calls) const;
  // None for the CPU. Throws where they are on several, or on one that is not served.
  std::optional<c10::Device> device_of(const Call& call) const;

  const std::shared_ptr<Communicator> communicator_;
  const c10::DeviceType devices_;
  Coalescing coalescing_;
};

}  // namespace ringdist
