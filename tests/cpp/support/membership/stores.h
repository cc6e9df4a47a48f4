// The stores of a World, as far as votes use them: one value per generation, changed by
// compare-and-set.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ringdist::membership {

class Stores {
 public:
  // `process` is the process that the store ends with, or -1.
  int add(std::string name, int host, int process) {
    all_.push_back({std::move(name), host, process, true, {}});
    return static_cast<int>(all_.size()) - 1;
  }
  int named(const std::string& name) const {
    for (size_t i = 0; i < all_.size(); ++i)
      if (all_[i].name == name) return static_cast<int>(i);
    return -1;
  }
  const std::string& name(int store) const { return all_[static_cast<size_t>(store)].name; }
  void lose(int store) { at(store).alive = false; }
  void lose_of(int process) {
    for (Store& one : all_)
      if (one.process == process) one.alive = false;
  }
  bool alive(int store) const { return all_[static_cast<size_t>(store)].alive; }
  int host(int store) const { return all_[static_cast<size_t>(store)].host; }
  int process(int store) const { return all_[static_cast<size_t>(store)].process; }

  std::string get(int store, uint64_t key) { return at(store).votes[key]; }
  bool compare_set(int store, uint64_t key, const std::string& before, const std::string& after) {
    std::string& vote = at(store).votes[key];
    if (vote != before) return false;
    vote = after;
    return true;
  }

 private:
  struct Store {
    std::string name;
    int host;
    int process;
    bool alive;
    std::map<uint64_t, std::string> votes;
  };

  Store& at(int store) { return all_[static_cast<size_t>(store)]; }

  std::vector<Store> all_;
};

}  // namespace ringdist::membership
