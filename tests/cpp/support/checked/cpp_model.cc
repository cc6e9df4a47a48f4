#include <algorithm>
#include <vector>

#include "base/check.h"
#include "support/checked/model.h"

namespace ringdist::checked {
namespace {

// A vector of counters. Missing elements at the end count as zero.
using Numbers = std::vector<uint64_t>;

uint64_t at(const Numbers& numbers, size_t index) {
  return index < numbers.size() ? numbers[index] : 0;
}

uint64_t& at(Numbers& numbers, size_t index) {
  if (numbers.size() <= index) numbers.resize(index + 1);
  return numbers[index];
}

void join(Numbers& into, const Numbers& other) {
  for (size_t i = 0; i < other.size(); ++i) at(into, i) = std::max(at(into, i), other[i]);
}

void append_all(std::string& key, const Numbers& numbers) {
  append(key, numbers.size());
  for (const uint64_t number : numbers) append(key, number);
}

struct Knowledge {
  Numbers stores;   // by atomic: the oldest store that may still be loaded
  Numbers actions;  // by thread: how many of its actions happened before

  void join_with(const Knowledge& other) {
    join(stores, other.stores);
    join(actions, other.actions);
  }
};

struct Store {
  uint64_t value = 0;
  Knowledge released;
};

struct Place {
  std::vector<Store> stores{Store{}};  // for an atomic: its stores, in modification order
  uint64_t agreed = 0;  // newest store that a sequentially consistent action has seen
  // The following members serve places that are not atomic.
  uint64_t value = 0;
  size_t writer = 0;
  uint64_t written = 0;  // index of the write among the actions of its writer, 0 if never written
  Numbers read;          // by thread: index of its last read among its own actions
};

bool acquires(std::memory_order order) {
  return order != std::memory_order_relaxed && order != std::memory_order_release;
}

bool releases(std::memory_order order) {
  return order != std::memory_order_relaxed && order != std::memory_order_acquire &&
         order != std::memory_order_consume;
}

class CppModel final : public Model {
 public:
  explicit CppModel(int threads) : known_(static_cast<size_t>(threads)) {}

  std::unique_ptr<Model> copy() const override { return std::make_unique<CppModel>(*this); }

  size_t ways(int thread, const Action& action, size_t number) const override {
    if (action.kind != Kind::kLoad || number >= places_.size()) return 1;
    return places_[number].stores.size() - oldest(thread, action, number);
  }

  uint64_t perform(int thread, const Action& action, size_t number, size_t way) override {
    if (places_.size() <= number) places_.resize(number + 1);
    Knowledge& knows = known_[static_cast<size_t>(thread)];
    ++at(knows.actions, static_cast<size_t>(thread));
    switch (action.kind) {
      case Kind::kLoad:
        return load(knows, action, number, oldest(thread, action, number) + way);
      case Kind::kStore:
        return store(knows, static_cast<size_t>(thread), action, number);
      case Kind::kRead:
        return read(knows, static_cast<size_t>(thread), places_[number]);
      case Kind::kWrite:
        return write(knows, static_cast<size_t>(thread), places_[number], action.value);
      default:
        check(false, "an action of no memory");
        return 0;
    }
  }

  void append_key(std::string& key) const override {
    for (const Knowledge& knows : known_) append_knowledge(key, knows);
    append(key, places_.size());
    for (const Place& place : places_) {
      append(key, place.stores.size());
      for (const Store& one : place.stores) {
        append(key, one.value);
        append_knowledge(key, one.released);
      }
      for (const uint64_t number : {place.agreed, place.value, place.writer, place.written})
        append(key, number);
      append_all(key, place.read);
    }
  }

 private:
  static void append_knowledge(std::string& key, const Knowledge& knows) {
    append_all(key, knows.stores);
    append_all(key, knows.actions);
  }

  size_t oldest(int thread, const Action& action, size_t number) const {
    const uint64_t known = at(known_[static_cast<size_t>(thread)].stores, number);
    const bool agrees = action.order == std::memory_order_seq_cst;
    return std::max(known, agrees ? places_[number].agreed : 0);
  }

  uint64_t load(Knowledge& knows, const Action& action, size_t number, size_t which) {
    Place& place = places_[number];
    const Store& found = place.stores[which];
    at(knows.stores, number) = which;
    if (acquires(action.order)) knows.join_with(found.released);
    if (action.order == std::memory_order_seq_cst)
      place.agreed = std::max<uint64_t>(place.agreed, which);
    return found.value;
  }

  uint64_t store(Knowledge& knows, size_t thread, const Action& action, size_t number) {
    Place& place = places_[number];
    check(place.stores.size() == 1 || place.writer == thread, "an atomic that two threads store");
    place.writer = thread;
    const uint64_t which = place.stores.size();
    at(knows.stores, number) = which;
    Store added{action.value, {}};
    if (releases(action.order)) added.released = knows;
    place.stores.push_back(std::move(added));
    if (action.order == std::memory_order_seq_cst) place.agreed = which;
    return 0;
  }

  static void check_writer(const Knowledge& knows, size_t thread, const Place& place,
                           const char* what) {
    if (place.writer != thread && at(knows.actions, place.writer) < place.written)
      throw Wrong{what};
  }

  static uint64_t read(const Knowledge& knows, size_t thread, Place& place) {
    check_writer(knows, thread, place, "a race: it reads what may not be written yet");
    at(place.read, thread) = at(knows.actions, thread);
    return place.value;
  }

  static uint64_t write(const Knowledge& knows, size_t thread, Place& place, uint64_t value) {
    check_writer(knows, thread, place, "a race: two write");
    for (size_t reader = 0; reader < place.read.size(); ++reader)
      if (reader != thread && at(knows.actions, reader) < place.read[reader])
        throw Wrong{"a race: it writes what may still be read"};
    place.writer = thread;
    place.written = at(knows.actions, thread);
    place.value = value;
    return 0;
  }

  std::vector<Knowledge> known_;
  std::vector<Place> places_;
};

}  // namespace

std::unique_ptr<Model> cpp_model(int threads) { return std::make_unique<CppModel>(threads); }

}  // namespace ringdist::checked
