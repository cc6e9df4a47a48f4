// The generations of a World as a tree: the predecessor of each generation and the processes that
// have installed it. The class detects two decisions for one generation.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "membership/paxos/decision.h"

namespace ringdist::membership {

class Lineages {
 public:
  // Records that a process goes from generation `from` to generation `to` by `decision`. Returns a
  // violation, or "" if there is none.
  std::string note(uint64_t from, uint64_t to, const Decision& decision) {
    const auto [found, added] = nodes_.try_emplace(to, Node{from, depth(from) + 1, decision, {}});
    if (added || found->second.decision == decision) return "";
    return "two decisions are taken for one";
  }
  void note_installed(uint64_t nonce, int process) { nodes_[nonce].installed.insert(process); }
  bool has_installed(uint64_t nonce, int process) const {
    const auto found = nodes_.find(nonce);
    return found != nodes_.end() && found->second.installed.contains(process);
  }
  const Decision* decision(uint64_t nonce) const {
    const auto found = nodes_.find(nonce);
    return found == nodes_.end() ? nullptr : &found->second.decision;
  }

  // True if one of the generations is an ancestor of the other, or both are equal.
  bool on_one_line(uint64_t a, uint64_t b) const {
    while (depth(a) > depth(b)) a = nodes_.at(a).from;
    while (depth(b) > depth(a)) b = nodes_.at(b).from;
    return a == b;
  }
  int depth(uint64_t nonce) const {
    const auto found = nodes_.find(nonce);
    return found == nodes_.end() ? 0 : found->second.depth;
  }

 private:
  struct Node {
    uint64_t from = 0;
    int depth = 0;
    Decision decision;
    std::set<int> installed;  // processes that have installed this generation
  };

  std::map<uint64_t, Node> nodes_;
};

}  // namespace ringdist::membership
