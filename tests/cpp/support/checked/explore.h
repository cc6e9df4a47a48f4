// Runs threads in every order, and with everything that memory may make of each (model.h): a search
// through all states that they can be in together. Two executions that come to the same state
// go on as one, so that what counts is the number of states, not that of executions.
//
// The threads are functions that use memory.h for all that they share, and nothing else that one
// run of them would leave for the next.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/checked/model.h"

namespace ringdist::checked {

struct Outcome {
  std::string wrong;      // "" if nothing ever is; else what, and the actions that lead there
  size_t states = 0;      // that were seen
  double executions = 0;  // that they stand for, where nothing is wrong
};

struct Program {
  std::vector<std::function<void()>> threads;
  std::map<const void*, std::string> names;  // of what they share, for messages
};

// Wrong is what a model or a thread says is, and that all threads that have not ended wait: for
// bells that nobody rings.
Outcome explore(const Program& program, std::unique_ptr<Model> (*model)(int threads));

}  // namespace ringdist::checked
