// Allreduce of sparse (COO) tensors: every rank gathers the entries of all, and adds up those of
// the same index. That takes two rounds, the second of which needs the sizes from the first. The
// first one is an op of the group and has its place among them; the second ones are in a group of
// their own, one after the other, so that their order is the same on all ranks.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "base/thread_annotations.h"
#include "engine/communicator.h"
#include "torch/ops/reduce.h"

namespace ringdist {

class SparseReducer {
 public:
  explicit SparseReducer(std::shared_ptr<Communicator> group);

  // Replaces the indices and values of the tensor, as its coalesced sum or average over the group.
  // All ranks give the same shape, dtype and number of sparse dimensions, else all get an Error
  // (kMismatch) and may go on. Any thread; throws what hindered the start.
  c10::intrusive_ptr<c10d::Work> reduce(const SparseCall& call);

  // False: something is still in flight then. Each call ends by its timeout.
  bool wait_until_idle(TimePoint deadline);

 private:
  struct Job;
  // Shared with the thread that works, which may outlive us.
  struct State {
    explicit State(std::shared_ptr<Communicator> group) : group(std::move(group)) {}
    const std::shared_ptr<Communicator> group;
    std::shared_ptr<Communicator> second;  // made at the first job, by the thread that works
    std::mutex mutex;                      // before the group's
    std::condition_variable idle;
    std::deque<std::shared_ptr<Job>> jobs RINGDIST_GUARDED_BY(mutex);
    bool working RINGDIST_GUARDED_BY(mutex) = false;
  };
  static void work(const std::shared_ptr<State>& state);
  static void finish(State& state, Job& job);

  const std::shared_ptr<State> state_;
};

}  // namespace ringdist
