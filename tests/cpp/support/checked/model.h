// Memory models for the model checker of explore.h. A model decides the results that each memory
// action may have.
//
// tso_model() is a processor like x86. The stores of a thread wait in its store buffer, in order,
// and reach memory at any later time. Only the thread itself reads its buffer. A sequentially
// consistent store waits until the buffer is empty; other orders have no effect.
//
// cpp_model() is the C++ memory model. A load may return any store that is not older than one that
// happened before it. A load that acquires adds everything that happened before the store that it
// reads, if that store releases. Sequentially consistent actions also see at least the newest
// store that an earlier one of that place has seen or stored. Accesses that are not atomic must be
// ordered by happens-before; otherwise they are a race.
//
// Each atomic may have only one thread that stores to it, so its modification order is fixed. A
// load never returns a store that executes later. The language allows that, but no processor does
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "support/checked/memory.h"

namespace ringdist::checked {

class Model {
 public:
  virtual ~Model() = default;
  virtual std::unique_ptr<Model> copy() const = 0;
  // Returns the number of results that the action can have in this state; zero if it has to wait.
  // Called for loads, stores, reads and writes only. `place` is the number of the variable.
  virtual size_t ways(int thread, const Action& action, size_t place) const = 0;
  // Performs the action with result number `way` and returns its value. Throws Wrong for a race.
  virtual uint64_t perform(int thread, const Action& action, size_t place, size_t way) = 0;
  // True if a store of the thread waits in a buffer and can reach memory at any time.
  virtual bool may_drain(int) const { return false; }
  virtual void drain(int) {}
  // Appends a key of the state. Two states from which the same can follow have equal keys.
  virtual void append_key(std::string& key) const = 0;
};

std::unique_ptr<Model> tso_model(int threads);
std::unique_ptr<Model> cpp_model(int threads);

// Appends a number to a key in a self-delimiting encoding, so that two different sequences of
// numbers never give the same key.
void append(std::string& key, uint64_t number);

}  // namespace ringdist::checked
