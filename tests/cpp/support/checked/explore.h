// Model checker for small multi-threaded programs. It searches all states that the threads can
// reach together, in every order of their actions and with every result that the memory model
// (model.h) allows. Two executions that reach the same state continue as one, so the cost grows
// with the number of states and not with the number of executions.
//
// The threads are functions that use the types of memory.h for everything that they share. They
// must leave nothing behind that could influence the next run of the same function, because each
// function runs many times. Not thread-safe: one explore() at a time per thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/checked/model.h"

namespace ringdist::checked {

struct Outcome {
  std::string wrong;  // "" if no execution fails, else the failure and the actions that lead to it
  size_t states = 0;  // number of distinct states visited
  double executions = 0;  // number of executions that these states cover, if nothing is wrong
};

struct Program {
  std::vector<std::function<void()>> threads;
  std::map<const void*, std::string> names;  // names of shared variables, for messages
};

// Explores all executions of `program` under a model. A failure is a Wrong that the model or a
// thread throws, or a state in which all unfinished threads wait for doorbells that no thread
// rings. The search also fails if it exceeds its limit on states.
Outcome explore(const Program& program, std::unique_ptr<Model> (*model)(int threads));

}  // namespace ringdist::checked
