#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/communicator.h"
#include "torch/coalescing.h"
#include "torch/ops/call.h"

namespace ringdist {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Runs the calls of a group, or adds them to the coalescing region of their thread. Where a call
// cannot be made or started, that is thrown and ends the region. Any thread.
class CallRunner : public std::enable_shared_from_this<CallRunner> {
 public:
  explicit CallRunner(std::shared_ptr<Communicator> communicator);

  // What `make` returns.
  WorkPtr run(const std::function<Call()>& make);
  // As one Work, of that type if they are several.
  WorkPtr run_all(c10d::OpType type, const std::function<std::vector<Call>()>& make);
  // What is no Call and starts at once: a region only waits for it.
  WorkPtr run_started(const std::function<WorkPtr()>& start);

  // What this thread calls between the two is started by the second one. The region's Work does not
  // keep us: it fails if it is asked to start the calls when we are gone.
  void begin_region();
  WorkPtr end_region();

 private:
  WorkPtr submit(Call call);

  const std::shared_ptr<Communicator> communicator_;
  Coalescing coalescing_;
};

}  // namespace ringdist
