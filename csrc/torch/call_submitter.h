// CallSubmitter: submits the calls of a group to its Communicator, and collects those of coalescing
// regions.
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

// Coalescing regions of a group. The calls of a thread between startCoalescing() and
// endCoalescing() are collected and start as a whole: no call waits for another one, and
// consecutive allreduces become one op. Each thread has its own region. Any thread.
class Coalescing {
 public:
  // Functions that start the calls of a region.
  struct RegionSubmitter {
    // Called with all calls of the region, in the order in which they will be submitted.
    std::function<void(const std::vector<Call>&)> prepare;
    std::function<c10::intrusive_ptr<c10d::Work>(Call)> submit;
  };

  Coalescing(int rank, std::shared_ptr<Hooks> hooks) : rank_(rank), hooks_(std::move(hooks)) {}

  // Opens a region on this thread. `starter` starts the calls; it lives as long as the region's
  // Work. A region that is still open, because an exception prevented its end, is dropped.
  void begin(RegionSubmitter starter);
  // Takes the call if this thread has an open region, and returns a Work that ends with the region.
  // Otherwise returns null.
  c10::intrusive_ptr<c10d::Work> collect(Call& call);
  // Adds a Work that has been started otherwise to this thread's region, if it has one. The
  // region's Work then waits for it, too.
  void adopt(const c10::intrusive_ptr<c10d::Work>& started);
  // Starts the collected calls, and throws the error if that fails. Without a region returns a Work
  // of no calls. A query of the region's Work for its outcome also ends the region, except for the
  // first is_completed().
  c10::intrusive_ptr<c10d::Work> end();
  // Ends this thread's region without starting anything, because one of its calls was refused. Its
  // Work fails.
  void drop();

 private:
  struct Region {
    std::mutex mutex;
    bool open RINGDIST_GUARDED_BY(mutex) = true;
    std::vector<Call> calls RINGDIST_GUARDED_BY(mutex);
    CombinedWork::Parts started RINGDIST_GUARDED_BY(mutex);
    // A Work per call, since hooks distinguish calls by their Works.
    std::vector<c10::intrusive_ptr<CombinedWork>> members RINGDIST_GUARDED_BY(mutex);
    // The Work of the region. It and the region hold each other until the region has run.
    c10::intrusive_ptr<CombinedWork> work RINGDIST_GUARDED_BY(mutex);
  };
  // Returns a Completion of no calls.
  CompletionPtr completion() const;
  // Removes and returns this thread's region, or null.
  std::shared_ptr<Region> take();
  // Returns this thread's region, or null.
  std::shared_ptr<Region> find();
  // Starts the calls of a region and returns their Works. Throws kAborted if the region was
  // dropped.
  static CombinedWork::Parts run(Region& region, const RegionSubmitter& starter);

  const int rank_;
  const std::shared_ptr<Hooks> hooks_;
  std::atomic<int> count_{0};  // number of regions_; other threads need no lock while it is 0
  std::mutex mutex_;           // locked before a region's mutex
  std::map<std::thread::id, std::shared_ptr<Region>> regions_ RINGDIST_GUARDED_BY(mutex_);
};

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Submits the calls of a group, or adds them to the coalescing region of their thread. Callers use
// a CallScope. Any thread.
class CallSubmitter : public std::enable_shared_from_this<CallSubmitter> {
 public:
  // `devices` is the type of devices for which the communicator has a runner.
  explicit CallSubmitter(std::shared_ptr<Communicator> communicator,
                         c10::DeviceType devices = c10::DeviceType::CUDA);

  // Calls of this thread between the two are started by end_region(). The region's Work does not
  // keep this object alive. If it is to start the calls later than that, it fails.
  void begin_region();
  WorkPtr end_region();

 private:
  friend class CallScope;

  // Returns a Completion for hooks that counts `calls`.
  CompletionPtr make_completion(size_t calls) const {
    return std::make_shared<Completion>(communicator_->hooks(), calls);
  }
  // Submits the call, or adds it to this thread's region.
  WorkPtr start(Call& call, const CompletionPtr& completion);
  // Submits a call to the Communicator. Throws its errors.
  WorkPtr submit(Call call);
  // Prepares the sends and receives on devices before the first call is submitted. May wait for
  // peers. Throws the errors of Communicator::prepare().
  void prepare(const std::vector<Call>& calls) const;
  // Returns the device of a call's tensors; nothing for the CPU. Throws if they are on several
  // devices, or on one that is not served.
  std::optional<c10::Device> device_of(const Call& call) const;

  const std::shared_ptr<Communicator> communicator_;
  const c10::DeviceType devices_;
  Coalescing coalescing_;
};

// One call of the user, from the check of its arguments to its submission. If the scope ends
// without a submission, because the call was refused, it also ends the coalescing region of its
// thread: a part of a region must not run. Stays on the stack of one thread.
class CallScope {
 public:
  explicit CallScope(CallSubmitter& submitter) : submitter_(submitter) {}
  ~CallScope() {
    if (!submitted_) submitter_.coalescing_.drop();
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  // Submits the call, or adds it to the thread's region. Throws the errors of
  // Communicator::submit().
  WorkPtr submit(Call call);
  // Submits several calls as one Work. It has `type` if they are not one.
  WorkPtr submit_all(c10d::OpType type, std::vector<Call> calls);
  // Passes on a Work that was started otherwise. A region only waits for it.
  WorkPtr add(WorkPtr started);

 private:
  const ReturnsToPython gate_;  // first, so that it is destroyed last
  CallSubmitter& submitter_;
  bool submitted_ = false;
};

}  // namespace ringdist
