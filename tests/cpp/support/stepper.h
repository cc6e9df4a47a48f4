// Runs a group of Ranks so that every run is the same run: one rank moves at a time, in turn, over
// a held `local` network, which gives a rank what was sent to it only when its turn comes; and the
// engine's clock stands still, so that nothing is measured. The ranks' lanes still have threads of
// their own, which find nothing to do between the turns.
//
// Over Ranks with `network.held`, whose transport is `local` and that have a Context each. One
// thread. A wait that takes too long ends the test's process, as in Ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/ranks.h"
#include "support/trace.h"

namespace ringdist {

class Stepper {
 public:
  using Group = std::vector<std::shared_ptr<Communicator>>;
  explicit Stepper(Ranks& ranks) : ranks_(ranks) {}

  // Returns when the members of a new group have found each other, at the same point of every run:
  // after a barrier, whose first messages need nothing and wait until all have sent theirs.
  void meet(const Group& group, const Trace& trace);

  // Rank after rank gets what is there for it and then makes its calls, all before any of them
  // begins. So the first rank's messages come to the others before their calls.
  using Calls = std::function<std::vector<OpRequest>(int rank)>;
  void call(const Group& group, const Calls& calls);
  // Turns until all calls have ended and nothing is on its way. Returns their errors' texts.
  std::vector<std::string> finish();

 private:
  void submit(Communicator& communicator, int rank, std::vector<OpRequest> requests);
  // Lets a rank receive, and work until it has to wait. True if something came.
  bool turn(int rank);
  [[noreturn]] void hang();
  void on_lane(int rank, const std::function<void()>& task);

  Ranks& ranks_;
  TimePoint now_;  // since call()
  std::vector<std::shared_ptr<Op>> ops_;
};

}  // namespace ringdist
