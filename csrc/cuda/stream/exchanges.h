// A rank's schedule as a stream runs it: one exchange after another. In each, steps do what they do
// to memory, and then messages move, all at once: a stream goes on when those of an exchange have.
// Two ranks have a message in exchanges of one number, and what is sent in one depends on earlier
// ones alone, so none waits for ever (tests/cpp/cuda/stream/exchanges_test.cc).
//
// Pure. Any thread.
#pragma once

#include <vector>

#include "plan/compiled_schedule.h"
#include "plan/round_assignment.h"

namespace ringdist::gpu {

// An end of an edge: `slot` is an index into its step's `out` or `in`.
struct ExchangeMessage {
  int step;
  int slot;
  // Of one that comes in: may lie where its step is to write. Else something there is in use still.
  bool in_place = false;
};

struct Exchange {
  // In their order; one with messages that come in has had all of them. A relay among them is taken
  // as a receipt.
  std::vector<int> steps;
  std::vector<ExchangeMessage>
      sends;  // by peers in the order of their edges, as those that come in
  std::vector<ExchangeMessage> receives;
};

// Of a rank that was walked, with Messages::kMet.
std::vector<Exchange> exchanges_of(const RoundAssignment& walk, int rank);

}  // namespace ringdist::gpu
