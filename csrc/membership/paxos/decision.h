// Value that the members of a generation decide on: the next generation. Also the ids and the
// acceptor state that the agreement needs. Plain values; any thread, but the Acceptor is not
// thread-safe.
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

// Number of an attempt at a decision, as in Paxos. A later round wins over an earlier one; within a
// round the higher rank wins. Two members never create the same ballot, since each uses its own
// rank.
struct Ballot {
  uint32_t round = 0;  // 0: no ballot
  int32_t rank = -1;   // rank of the proposer in the generation that decides

  auto operator<=>(const Ballot&) const = default;
};

// Identifies a process, as ContextId in transport/transport.h does. A process that others have
// treated as dead can come back only under another id.
using ProcessId = uint64_t;

// Identifies a generation. The nonce distinguishes it from the generations that another decision
// under the same number would have created.
struct GenerationId {
  uint32_t number = 0;  // counts from 0
  uint64_t nonce = 0;   // hash of the decision that created it; of the first, random

  bool operator==(const GenerationId&) const = default;
};

// Returns the rank of `process` in `members`, which are ordered by rank; -1 if it is no member.
int rank_of(ProcessId process, const std::vector<ProcessId>& members);

// A process that wants to join. `entry` is its rank info, from which members get its addresses; the
// consensus does not look into it.
struct Newcomer {
  ProcessId process = 0;
  std::string entry;

  bool operator==(const Newcomer&) const = default;
};

// A member of the old generation that is not in the new one, and why.
struct LostMember {
  // With kDied, a kernel reported the death. With kSilent, it did not promise in time.
  enum class Cause : uint8_t { kDied, kSilent };
  int32_t rank = -1;  // in the old generation
  Cause cause = Cause::kDied;

  bool operator==(const LostMember&) const = default;
};

// The decided value: members, newcomers and store of the next generation. Every member that
// installs it does so with equal contents.
struct Decision {
  uint32_t generation = 0;  // number of the generation that it creates
  uint64_t after = 0;       // nonce of the generation before, which decided
  Ballot proposed;          // makes two decisions for one generation differ
  // Members by their new ranks: survivors in their old order, then newcomers.
  std::vector<ProcessId> members;
  uint32_t survivor_count = 0;      // the first so many members are survivors
  std::vector<Newcomer> newcomers;  // the remaining members, in the same order
  std::vector<LostMember> lost;     // members of the old generation that are left out
  // Number of the first op of the old generation that some survivor did not finish.
  int64_t first_unfinished = 0;
  std::string store;  // address of the store of the new generation
  // Some member lacks addresses of others, so all members rendezvous through the store. Always true
  // if there are newcomers.
  bool needs_rendezvous = false;

  bool operator==(const Decision&) const = default;
  int rank_of(ProcessId process) const { return ringdist::rank_of(process, members); }
  // Returns true if the value is consistent in itself. Values that arrive over the network need not
  // be.
  bool makes_sense() const;
  // Returns true if each of `before`, the members of the generation before, either survives, in the
  // old order, or is lost. Values that arrive over the network need not be like that.
  bool comes_from(const std::vector<ProcessId>& before) const;
  // Returns true if the members of `before` decided this value.
  bool follows(const GenerationId& before) const {
    return generation == before.number + 1 && after == before.nonce;
  }
  // Returns the id of the generation that this decision creates.
  GenerationId id() const;
};

// Returns the nonce of the generation that `decision` creates. It is a hash of `after`, the number,
// the ballot and the members, so all members compute the same one. A ballot composes one value
// only, so the other fields need not be hashed.
uint64_t nonce_of(const Decision& decision);

// Serialization of the parts of messages. A get function returns a value also when the bytes end
// early, so the caller checks in.ok() afterwards.
void put(Writer& out, const Ballot& ballot);
Ballot get_ballot(Reader& in);
void put(Writer& out, const std::vector<Newcomer>& newcomers);
std::vector<Newcomer> get_newcomers(Reader& in);
void put(Writer& out, const Decision& decision);
Decision get_decision(Reader& in);

// Reads a count and calls `each` so many times, until the bytes end. The count is untrusted, so it
// is limited.
template <typename Each>
void get_each(Reader& in, const Each& each) {
  constexpr uint32_t kMost = 1 << 20;  // more than any list has
  const auto count = std::min(in.get<uint32_t>(), kMost);
  for (uint32_t i = 0; i < count && in.ok(); ++i) each();
}

// A value that an acceptor, or the store, has accepted, with its ballot.
struct Accepted {
  Ballot ballot;
  Decision value;
};

// Acceptor of single-decree Paxos (Lamport, "Paxos Made Simple", 2001) for one generation:
// remembers the latest promise and the accepted value. Nothing is written to disk, because a
// process that ends never comes back as the same member. Not thread-safe.
class Acceptor {
 public:
  const Ballot& promised() const { return promised_; }  // round 0: no promise so far
  const std::optional<Accepted>& accepted() const { return accepted_; }

  // Promises to accept nothing of a ballot earlier than `ballot`. Returns false, without a change,
  // if a later one was promised.
  bool promise(const Ballot& ballot) {
    if (ballot < promised_) return false;
    promised_ = ballot;
    return true;
  }
  // Accepts `value` in `ballot`, which implies the promise. Returns false, without a change, if a
  // later ballot was promised.
  bool accept(const Ballot& ballot, const Decision& value) {
    if (!promise(ballot)) return false;
    accepted_ = {ballot, value};
    return true;
  }
  // Returns true if this member may install `value`, which another member reports as decided as of
  // `ballot`. The reporter has decided it in that ballot or accepts nothing up to it any more.
  //
  // Returns false if this member has accepted another value in a later ballot. That value may have
  // been decided by members that never received the reported decision, after all members that had
  // it died. The reported decision binds nobody then.
  bool may_learn(const Ballot& ballot, const Decision& value) const {
    return !accepted_ || accepted_->ballot <= ballot || accepted_->value == value;
  }

 private:
  Ballot promised_;
  std::optional<Accepted> accepted_;
};

}  // namespace ringdist
