// Collectives for SimRanks: the input of each rank and the expected output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/op/op.h"

namespace ringdist {

// A collective over float32, with SUM where it reduces. `count` has the meaning that it has in
// Shape. The root is the last rank.
class SimOp {
 public:
  SimOp(Collective kind, int size, int64_t count);

  OpRequest request(int rank);
  // Returns the first difference from the expected results, or "".
  std::string problem() const;
  // True if all ranks have bitwise equal outputs. A compressed allreduce guarantees no more than
  // this.
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
