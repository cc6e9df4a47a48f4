// What the members of a generation decide: the next one. Values; any thread.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/serialize.h"

namespace ringdist {

// The number of an attempt at a decision. Of two attempts the later round wins, of one round the
// higher rank; two members never make the same.
struct Ballot {
  uint32_t round = 0;  // 0: none
  int32_t rank = -1;   // of its proposer, in the generation that decides

  auto operator<=>(const Ballot&) const = default;
};

// A process, as base/config.h's ContextId: one that was taken for dead comes back as another.
using ProcessId = uint64_t;

// What tells a generation from all others, also from those that another decision would have made.
struct GenerationId {
  uint32_t number = 0;
  uint64_t nonce = 0;

  bool operator==(const GenerationId&) const = default;
};

// -1: it is no member.
int rank_of(ProcessId process, const std::vector<ProcessId>& members);

// A process that wants to become a member, with what members need to know to reach it.
struct Newcomer {
  ProcessId process = 0;
  std::string entry;

  bool operator==(const Newcomer&) const = default;
};

struct LostMember {
  enum class Cause : uint8_t { kDied, kSilent };  // the kernel said so; nothing came from it
  int32_t rank = -1;                              // that it had
  Cause cause = Cause::kDied;

  bool operator==(const LostMember&) const = default;
};

struct Decision {
  uint32_t generation = 0;  // that it makes
  uint64_t after = 0;       // nonce of the one before, whose members decided
  Ballot proposed;          // two decisions of one generation differ here
  // In the order of their new ranks: those who stay, as they were, and newcomers.
  std::vector<ProcessId> members;
  uint32_t survivor_count = 0;  // the first so many of them
  std::vector<Newcomer> newcomers;
  std::vector<LostMember> lost;
  int64_t first_unfinished =
      0;              // the first op of the old generation that not all who stay finished
  std::string store;  // the address of the one that the new generation uses
  bool needs_rendezvous =
      false;  // not all know how all are reached: they find each other by the store

  bool operator==(const Decision&) const = default;
  int rank_of(ProcessId process) const { return ringdist::rank_of(process, members); }
  // By itself: what came from elsewhere need not.
  bool makes_sense() const;
  bool follows(const GenerationId& before) const {
    return generation == before.number + 1 && after == before.nonce;
  }
  // The generation that it makes.
  GenerationId id() const;
};

// The nonce of the generation that it makes.
uint64_t nonce_of(const Decision& decision);

// Of what is read check in.ok() afterwards.
void put(Writer& out, const Ballot& ballot);
Ballot get_ballot(Reader& in);
void put(Writer& out, const std::vector<Newcomer>& newcomers);
std::vector<Newcomer> get_newcomers(Reader& in);
void put(Writer& out, const Decision& decision);
Decision get_decision(Reader& in);

// Reads how many there are, and each of them, or stops where the bytes do.
template <typename Each>
void get_each(Reader& in, const Each& each) {
  constexpr uint32_t kMost = 1 << 20;  // more than any list has
  const auto count = std::min(in.get<uint32_t>(), kMost);
  for (uint32_t i = 0; i < count && in.ok(); ++i) each();
}

// A member's memory of the ballots of one generation: Paxos' acceptor (Lamport, "Paxos Made
// Simple", 2001). It is not kept on disk: a process that ends never comes back as the same member.
struct Accepted {
  Ballot ballot;
  Decision value;
};

class Acceptor {
 public:
  const Ballot& promised() const { return promised_; }
  const std::optional<Accepted>& accepted() const { return accepted_; }

  // From then on, nothing of an earlier ballot is accepted.
  bool promise(const Ballot& ballot) {
    if (ballot < promised_) return false;
    promised_ = ballot;
    return true;
  }
  bool accept(const Ballot& ballot, const Decision& value) {
    if (!promise(ballot)) return false;
    accepted_ = {ballot, value};
    return true;
  }
  // That `value` was decided as of `ballot`: who says so has decided it there, or accepts nothing
  // up to it any more. What was accepted since may have been decided by those who know nothing of
  // it, if all who did have died: then it came to nothing.
  bool may_learn(const Ballot& ballot, const Decision& value) const {
    return !accepted_ || accepted_->ballot <= ballot || accepted_->value == value;
  }

 private:
  Ballot promised_;
  std::optional<Accepted> accepted_;
};

}  // namespace ringdist
