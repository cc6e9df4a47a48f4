// Collectives for SimRanks: what each rank brings, and what it must end with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/op/op.h"

namespace ringdist {

// Of float32, summed where it reduces. `count`: as in Shape. The root is the last rank.
class SimOp {
 public:
  SimOp(Collective kind, int size, int64_t count);

  OpRequest request(int rank);
  // What is wrong with the results, or "".
  std::string problem() const;
  // All ranks have the same output, bit by bit: what compression leaves of an allreduce.
  bool outputs_equal() const;

 private:
  struct Data {
    std::vector<float> input;
    std::vector<float> output;
  };
  int64_t parts() const { return size_ * count_; }

  const Collective kind_;
  const int size_;
  const int64_t count_;
  std::vector<Data> data_;  // by rank
};

}  // namespace ringdist
