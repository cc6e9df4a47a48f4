// SparseReducer: allreduce of sparse (COO) tensors. Every rank gathers the entries of all ranks and
// adds up those with the same index.
//
// This takes two rounds, because the second one needs sizes from the first. The first round is an
// op of the group, in order with its other ops. The second rounds run in a duplicate, one after the
// other, so that their order is the same on all ranks.
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

// Runs the sparse allreduces of one group. The second rounds run on a thread of the pool. Any
// thread.
class SparseReducer {
 public:
  explicit SparseReducer(std::shared_ptr<Communicator> group);

  // Replaces the indices and values of the tensor by its coalesced sum or average over the group.
  // All ranks have to give the same shape, dtype and number of sparse dimensions. Otherwise all of
  // them get an Error (kMismatch) and may go on. Does not wait for other ranks. Throws if the
  // tensor has more than 64 dimensions or if the op cannot be started.
  c10::intrusive_ptr<c10d::Work> reduce(const SparseCall& call);

  // Waits until no call is in flight; returns false at the deadline. Each round of a call ends by
  // the call's timeout. Returns true at once in a forked child.
  bool wait_until_idle(TimePoint deadline);

 private:
  struct Job;
  // State shared with the thread that runs the second rounds, which may outlive this object.
  struct State {
    explicit State(std::shared_ptr<Communicator> group) : group(std::move(group)) {}
    const std::shared_ptr<Communicator> group;
    // Duplicate for the second rounds, made at the first job. Only work() uses it.
    std::shared_ptr<Communicator> second;
    std::mutex mutex;  // locked before the group's mutex
    std::condition_variable idle;
    std::deque<std::shared_ptr<Job>> jobs RINGDIST_GUARDED_BY(mutex);
    bool working RINGDIST_GUARDED_BY(mutex) = false;
  };
  // Finishes jobs until there are none left. Runs on the pool.
  static void work(const std::shared_ptr<State>& state);
  // Runs the second round of a job and writes its result. Throws.
  static void finish(State& state, Job& job);

  const std::shared_ptr<State> state_;
};

}  // namespace ringdist
