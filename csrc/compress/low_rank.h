// PowerSGD over a group: averages matrices through approximations of rank r.
//
// Each matrix needs two allreduces, and the second depends on the first. A dedicated thread
// computes one chunk of matrices while factors of other chunks travel. It needs a group of its own,
// so that all ranks submit its ops in the same order, independent of the process' other ops.
//
// Source: T. Vogels, S. P. Karimireddy, M. Jaggi: "PowerSGD", NeurIPS 2019. One detail differs: the
// residual of a rank is its own values less its own part of the projection. The sum over the ranks
// is the same as in the paper, but a rank that contributes zeros keeps its residual unchanged.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/thread_annotations.h"
#include "engine/communicator.h"
#include "kernel/low_rank.h"

namespace ringdist {

// A matrix to average, with its state of error feedback.
struct LowRankMatrix {
  MatrixShape shape;
  DType dtype = DType::kFloat32;  // float32, bfloat16, float16
  // count() of them, row-major and aligned for the dtype; the average replaces them.
  std::byte* values = nullptr;
  // count() fp32 in units of one rank's contribution; null without error feedback.
  float* residual = nullptr;
  float* right = nullptr;  // right() fp32: the last approximation, where the next one begins
  // Destinations of the new residual and the new `right`, which are used after success. If null,
  // the buffers above are overwritten, and a failure leaves them undefined.
  float* next_residual = nullptr;
  float* next_right = nullptr;
};

// Returns the noise where the first approximation of a matrix begins. It depends on the shape only,
// so it is the same on all ranks.
std::vector<float> first_right(const MatrixShape& shape);

// Averages matrices on a thread of its own. Any thread may call reduce(), but all ranks need the
// same order of calls.
class LowRankReducer {
 public:
  // `group` must be used by this object only.
  explicit LowRankReducer(std::shared_ptr<Communicator> group);
  // Waits for all averages, those in the queue included. In a forked child, leaves the thread and
  // its state alone.
  ~LowRankReducer();

  // Queues an average of the matrices over the group. All ranks pass the same shapes. `done` runs
  // on the reducer's thread with the first error, if any. It must not throw and should return
  // quickly, because later averages wait for it. The memory must stay valid until then. Must not be
  // called in a forked child, where `done` would never run.
  void reduce(std::vector<LowRankMatrix> matrices, std::function<void(Error)> done);

 private:
  // The matrices of one call of reduce().
  struct Job {
    std::vector<LowRankMatrix> matrices;
    std::function<void(Error)> done;
  };
  // Allocated separately, because a forked child has no such thread and must leave its state
  // untouched.
  struct State {
    explicit State(std::shared_ptr<Communicator> group) : group(std::move(group)) {}
    const std::shared_ptr<Communicator> group;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Job> jobs RINGDIST_GUARDED_BY(mutex);
    bool stopping RINGDIST_GUARDED_BY(mutex) = false;
  };
  // Main function of the thread. Works through the jobs in order.
  static void run(State& state);

  State* const state_;
  std::thread thread_;
};

}  // namespace ringdist
