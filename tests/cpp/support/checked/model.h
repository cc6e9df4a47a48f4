// What memory may make of the actions of several threads. Two models:
//
//   tso_model()  a processor as x86: each thread's stores wait in a queue of its own, which it
//                alone reads, and reach memory in their order, at any time. A sequentially
//                consistent store waits for that; other orders make no difference.
//   cpp_model()  the language: a load may return any store that is not older than one that its
//                thread has to know of. It knows its own, those that it has loaded, and with a
//                store that it acquires all that its releaser knew. Sequentially consistent actions
//                besides see what the ones before them of that place have seen or stored. What is
//                not atomic must be ordered by that knowledge, else it is a race.
//
// An atomic has one thread that stores to it, so that the order of its stores is no question. Not
// tried is what the language has but no processor does: loads of what is stored in the future.
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
  // In how many ways the action can go on now; none: it has to wait. Of loads and stores only; a
  // place is a number instead of an address.
  virtual size_t ways(int thread, const Action& action, size_t place) const = 0;
  // Returns what the action does. Throws Wrong.
  virtual uint64_t perform(int thread, const Action& action, size_t place, size_t way) = 0;
  // Of threads whose stores can move on by themselves.
  virtual bool may_drain(int) const { return false; }
  virtual void drain(int) {}
  // The same for states from which the same can follow.
  virtual void append_key(std::string& key) const = 0;
};

std::unique_ptr<Model> tso_model(int threads);
std::unique_ptr<Model> cpp_model(int threads);

// For keys: numbers that nothing else of a key can be taken for, at a fixed position.
void append(std::string& key, uint64_t number);

}  // namespace ringdist::checked
