// Which processes have found all others of a group. It is the last phase of a group's formation:
// who has connected says so, and no rank's connect_group() returns before all have. So a process
// whose first operations are done may end, and take the store with it: nobody looks for members any
// more. Control thread only; no locks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <vector>

namespace ringdist {

class FormationBarrier {
 public:
  // Those of them that were not known. Of groups for which `ours` is false the oldest are forgotten
  // when there are many: others may know of a group before this process does. What throws may have
  // learned a part.
  std::vector<uint64_t> learn(uint64_t nonce, const std::vector<uint64_t>& processes,
                              const std::function<bool(uint64_t nonce)>& ours);
  void forget(uint64_t nonce);

  bool has(uint64_t nonce, uint64_t process) const;
  // All that are known; none if there is none.
  std::vector<uint64_t> of(uint64_t nonce) const;

 private:
  std::set<uint64_t>& enter(uint64_t nonce, const std::function<bool(uint64_t nonce)>& ours);

  std::map<uint64_t, std::set<uint64_t>> known_;  // by nonce
  std::deque<uint64_t> order_;                    // its nonces, the oldest first
};

}  // namespace ringdist
