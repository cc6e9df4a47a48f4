// PowerSGD over a group: averages matrices by their rank-r approximations. Each matrix needs two
// allreduces, the second of which depends on the first; a thread of its own computes for one chunk
// of matrices while those of others travel. The group is its own, too: its ops are issued in one
// order on all ranks, whatever else the process does.
//
// T. Vogels, S. P. Karimireddy, M. Jaggi: "PowerSGD", NeurIPS 2019. Departs from it in what a rank
// keeps: its own values less its own part of the projection. The sum over the ranks is the same,
// and a rank that contributed zeros owes what it owed.
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

struct LowRankMatrix {
  MatrixShape shape;
  DType dtype = DType::kFloat32;  // float32, bfloat16, float16
  std::byte* values = nullptr;    // count() of them, row-major: replaced by the average
  float* residual = nullptr;      // count() fp32, in units of a contribution; null: none
  float* right = nullptr;         // right() fp32: the last approximation, where the next one begins
  // Where what will be owed and the next `right` go once all has succeeded; null: into the above,
  // which a failure then spoils.
  float* next_residual = nullptr;
  float* next_right = nullptr;
};

// Where the first approximation of a matrix begins: the same on all ranks.
std::vector<float> first_right(const MatrixShape& shape);

class LowRankReducer {
 public:
  explicit LowRankReducer(std::shared_ptr<Communicator> group);
  // Waits for what is in flight.
  ~LowRankReducer();

  // Averages the matrices over the group; all ranks give the same shapes in the same order of
  // calls. `done` runs on the reducer's thread. The memory must stay until then.
  void reduce(std::vector<LowRankMatrix> matrices, std::function<void(Error)> done);

 private:
  struct Job {
    std::vector<LowRankMatrix> matrices;
    std::function<void(Error)> done;
  };
  // Apart from us, because a forked child must leave it as it is: it has no such thread.
  struct State {
    explicit State(std::shared_ptr<Communicator> group) : group(std::move(group)) {}
    const std::shared_ptr<Communicator> group;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Job> jobs RINGDIST_GUARDED_BY(mutex);
    bool stopping RINGDIST_GUARDED_BY(mutex) = false;
  };
  static void run(State& state);

  State* const state_;
  std::thread thread_;
};

}  // namespace ringdist
