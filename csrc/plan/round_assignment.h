// Assigns rounds to the steps of all ranks of an op. A step runs in the round after that of the
// last message that it waits for.
//
// It is pure, and immutable once created. Any thread.
#pragma once

#include <memory>
#include <vector>

#include "plan/compiled_schedule.h"

namespace ringdist {

// The rounds of one op. Schedules that do not end, or ends of edges that do not match, fail a
// check.
class RoundAssignment {
 public:
  // Handling of messages by the sender.
  enum class SendMode : uint8_t {
    kKept,  // messages are buffered, so the sender may continue; sends follow Step::follows
    kMet,   // all messages of a round move at once, and the sender's memory is in use until then
  };

  // Takes the schedules of ranks 0 to n - 1 of a group of `size` ranks. They stand for all others
  // by symmetry (simulate/rank_symmetry.h). Each step must have one segment.
  RoundAssignment(std::vector<std::shared_ptr<const CompiledSchedule>> ranks, int size,
                  SendMode messages);

  // Returns the symmetry period n, the number of schedules.
  int alike() const { return static_cast<int>(ranks_.size()); }
  const std::vector<CompiledStep>& steps(int rank) const {
    return ranks_[static_cast<size_t>(rank)]->steps;
  }
  // Returns the round of a step, counted from 0. Its messages leave in that round. `rank` is below
  // alike().
  int of(int rank, int step) const { return round_[at(rank, step)]; }
  // Returns the round of the message that arrives at a rank by an edge. The rank may be any of the
  // group.
  int of_message(int rank, const EdgeId& in) const;

 private:
  // A representative rank, and a peer renumbered as seen from it.
  struct Seen {
    int rank;
    int peer;
  };
  Seen seen(int whose, int peer) const;
  size_t at(int rank, int step) const {
    return static_cast<size_t>(first_[static_cast<size_t>(rank)]) + static_cast<size_t>(step);
  }
  bool takes_turns() const { return messages_ == SendMode::kKept; }
  // Computes round_ in topological order: a step is ready once all that it waits for has a round.
  void work_out();
  // Returns the number of steps and messages that a step waits for.
  int waits_of(const CompiledStep& step) const;
  // Pass the round of a step on to later steps of its rank, and to the receivers of its messages.
  void tell_later(int rank, int step);
  void tell_peers(int rank, int step);
  // Ends `times` waits of a step, which must not run before round `reached`.
  void let_go(int rank, int step, int reached, size_t times);

  const std::vector<std::shared_ptr<const CompiledSchedule>> ranks_;
  const int size_;
  const SendMode messages_;
  std::vector<int> first_;                  // per rank, the number of its first step
  std::vector<int> round_;                  // rounds of steps by number
  std::vector<int> waits_;                  // steps and messages that a step still waits for
  std::vector<std::pair<int, int>> ready_;  // (rank, step) of steps that may run, in order
};

}  // namespace ringdist
