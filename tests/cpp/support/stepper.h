// Runs a group of Ranks deterministically. One rank at a time runs, in turn, over a held `local`
// network that delivers a rank's messages only in its turn. The engine's clock stands still, so
// nothing depends on measured time. The lanes of the ranks keep their threads, but these find no
// work between the turns.
//
// The Ranks must have `network.held`, the `local` transport and one Context each. Single-threaded.
// A wait that takes too long ends the test process, as in Ranks.
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

  // Returns when all members of a new group have found each other, at the same point of every run.
  // It runs a barrier and waits until every rank has sent a message. The first messages of a
  // barrier depend on no other rank.
  void meet(const Group& group, const Trace& trace);

  // Lets each rank in turn receive its pending messages and submit its calls, before any of them
  // begins. So messages of the first rank arrive at the others before their calls.
  using Calls = std::function<std::vector<OpRequest>(int rank)>;
  void call(const Group& group, const Calls& calls);
  // Gives all ranks turns until all calls have ended and no message is under way. Returns the
  // texts of their errors.
  std::vector<std::string> finish();

 private:
  void submit(Communicator& communicator, int rank, std::vector<OpRequest> requests);
  // Lets a rank receive messages and work until it has to wait. Returns true if a message arrived.
  bool turn(int rank);
  [[noreturn]] void hang();
  void on_lane(int rank, const std::function<void()>& task);

  Ranks& ranks_;
  TimePoint now_;  // time of the last call(); the engine's clock shows it
  std::vector<std::shared_ptr<Op>> ops_;
};

}  // namespace ringdist
