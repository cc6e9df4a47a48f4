#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/communicator.h"
#include "torch/coalescing.h"
#include "torch/ops/call.h"
#include "torch/work/interrupts.h"

namespace ringdist {

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
