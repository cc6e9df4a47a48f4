// The steps of all ranks of an op, each with the round in which it can be done: that after the last
// message that it waits for.
//
// Pure; immutable once made. Any thread.
#pragma once

#include <memory>
#include <vector>

#include "plan/compiled_schedule.h"

namespace ringdist {

class RoundAssignment {
 public:
  // What becomes of messages.
  enum class SendMode : uint8_t {
    kKept,  // who sends may go on; sends take their turns (Step::follows)
    kMet,   // all of a round move at once: their memory is the sender's until then
  };

  // Ranks 0 to n - 1 of `size`, which stand for all others as of simulate/rank_symmetry.h; each
  // step one segment.
  RoundAssignment(std::vector<std::shared_ptr<const CompiledSchedule>> ranks, int size,
                  SendMode messages);

  int alike() const { return static_cast<int>(ranks_.size()); }
  const std::vector<CompiledStep>& steps(int rank) const {
    return ranks_[static_cast<size_t>(rank)]->steps;
  }
  // From 0; the step's messages leave in it.
  int of(int rank, int step) const { return round_[at(rank, step)]; }
  // That of the message that comes to a rank by an edge. The rank may be any of the group.
  int of_message(int rank, const EdgeId& in) const;

 private:
  // A rank that is walked, and which rank it takes another for.
  struct Seen {
    int rank;
    int peer;
  };
  Seen seen(int whose, int peer) const;
  size_t at(int rank, int step) const {
    return static_cast<size_t>(first_[static_cast<size_t>(rank)] + step);
  }
  bool takes_turns() const { return messages_ == SendMode::kKept; }
  void work_out();
  int waits_of(const CompiledStep& step) const;
  void tell_later(int rank, int step);
  void tell_peers(int rank, int step);
  void let_go(int rank, int step, int reached, size_t times);

  const std::vector<std::shared_ptr<const CompiledSchedule>> ranks_;
  const int size_;
  const SendMode messages_;
  std::vector<int> first_;                  // by rank: the number of its first step
  std::vector<int> round_;                  // by number
  std::vector<int> waits_;                  // by number: for so many steps and messages
  std::vector<std::pair<int, int>> ready_;  // rank, step
};

}  // namespace ringdist
