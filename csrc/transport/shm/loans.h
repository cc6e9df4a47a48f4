// The blocks of this process's shared tensors that one peer may read where they lie. A payload that
// lies in one need not be copied: the message names its place. With the lane's token held.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "os/shared_blocks.h"
#include "transport/shm/layout.h"
#include "transport/shm/loan_note.h"

namespace ringdist::shm {

class Loans {
 public:
  // Where the peer finds these bytes (layout.h); nothing where it cannot, or not yet: a block is
  // offered when it is first asked for.
  std::optional<uint64_t> place(const Fd& socket, ConstBytes payload);
  // Error: kProtocol, for an answer that nobody asked for.
  Error on_note(const LoanNote& note);
  // Tells the peer of blocks that were freed since; what cannot be told now is told by a later
  // call.
  void return_freed(const Fd& socket);
  void clear() { all_.clear(); }
  // True once after an offer: the next message tells the peer to look for it.
  bool take_hint() { return std::exchange(hint_, false); }
  bool awaits_answer() const;

 private:
  enum class State : uint8_t { kOffered, kTaken, kRefused };
  struct Loan {
    uint32_t number;
    State state;
    std::shared_ptr<SharedBlock> block;
  };

  Loan* find(const SharedBlock& block);
  void offer(const Fd& socket, std::shared_ptr<SharedBlock> block);
  uint32_t free_number();

  std::vector<Loan> all_;  // at most kMaxLoans
  uint32_t last_ = 0;
  uint64_t frees_seen_ = 0;
  bool hint_ = false;
};

}  // namespace ringdist::shm
