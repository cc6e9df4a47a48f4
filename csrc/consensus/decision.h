// What the members of a generation decide: the next one. Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/serialize.h"
#include "consensus/ballot.h"

namespace ringdist {

// A process, as base/config.h's ContextId: one that was taken for dead comes back as another.
using ProcessId = uint64_t;

// A process that wants to become a member, with what members need to know to reach it.
struct Newcomer {
  ProcessId process = 0;
  std::string entry;

  bool operator==(const Newcomer&) const = default;
};

struct Lost {
  enum class Cause : uint8_t { kDied, kSilent };  // the kernel said so; nothing came from it
  int32_t rank = -1;                              // that it had
  Cause cause = Cause::kDied;

  bool operator==(const Lost&) const = default;
};

struct Decision {
  uint32_t generation = 0;  // that it makes
  uint64_t after = 0;       // nonce of the one before, whose members decided
  Ballot proposed;          // two decisions of one generation differ here
  // In the order of their new ranks: those who stay, as they were, and newcomers.
  std::vector<ProcessId> members;
  uint32_t stay = 0;  // the first so many of them
  std::vector<Newcomer> newcomers;
  std::vector<Lost> lost;
  int64_t first_unfinished =
      0;              // the first op of the old generation that not all who stay finished
  std::string store;  // the address of the one that the new generation uses

  bool operator==(const Decision&) const = default;
  int rank_of(ProcessId process) const;  // -1: it is no member
  // By itself: what came from elsewhere need not.
  bool makes_sense() const;
  bool follows(uint32_t its_generation, uint64_t its_nonce) const {
    return generation == its_generation + 1 && after == its_nonce;
  }
};

void put(Writer& out, const Decision& decision);
// Check in.ok() afterwards.
Decision get_decision(Reader& in);

// The number by which a generation's messages are told from those of others, also from those of
// another decision of the same generation that came to nothing.
uint64_t nonce_of(const Decision& decision);

}  // namespace ringdist
