// Calls that run as one op.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/op/op.h"

namespace ringdist {

class Batch {
 public:
  // `end`: null, or what its caller waits for.
  void add(OpRequest part, std::shared_ptr<Op> end);

  // One request over the memory of all parts, in order. Taken once.
  OpRequest take_request();
  const std::vector<std::shared_ptr<Op>>& ends() const { return ends_; }

 private:
  OpRequest request_;
  std::vector<std::shared_ptr<void>> memory_;
  std::vector<std::shared_ptr<Op>> ends_;
};

}  // namespace ringdist
