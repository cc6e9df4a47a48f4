// What members tell each other while they decide. Bytes on the wire: encode(); the control plane
// carries them. Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "membership/paxos/decision.h"

namespace ringdist {

// What a member brings into a decision. Its ops of the old generation have ended when it says so.
struct PromiseInfo {
  int64_t first_unfinished = 0;
  std::string store;  // the address of the present one
  bool reaches_store = true;
  std::string offers_store;  // the address at which it would serve one; "": it cannot
  std::vector<Newcomer> newcomers;
  bool formed = true;  // it knows how the present members are reached
  uint32_t most = 0;   // newcomers come while there are fewer members; 0: any number
};

enum class ConsensusMessageKind : uint8_t {
  kPrepare,    // of a ballot: what do you know?                           proposer -> all
  kPromise,    // this, and nothing of earlier ballots from now on         -> proposer
  kRefuse,     // I promised a later ballot                                -> proposer
  kAccept,     // the ballot's value                                       proposer -> all
  kAccepted,   //                                                          -> proposer
  kWait,       // you have answered, others have not                       proposer -> those
  kReport,     // the kernel told me of deaths                             -> proposer
  kDecided,    // as of that ballot                                        -> all, and who is behind
  kAsk,        // I have not decided yet; what came of my generation?      -> who has
  kInstalled,  // I am a member of the new generation                      -> its rank 0
  kBegun,      // all who stay have installed it: ops may begin            its rank 0 -> all
};

std::string_view message_name(ConsensusMessageKind kind);  // "prepare"

struct ConsensusMessage {
  ConsensusMessageKind kind = ConsensusMessageKind::kPrepare;
  GenerationId generation;  // of whose members it is: they decide the next
  Ballot ballot;
  std::vector<int32_t> dead;            // ranks whose deaths the kernel reported to a member
  std::optional<Accepted> accepted;     // kPromise
  std::optional<PromiseInfo> standing;  // kPromise
  std::optional<Decision> decision;     // kAccept, kDecided
  // What made the generation: in kBegun, and in all that its newcomers get.
  std::optional<Decision> made_by;
};

std::vector<std::byte> encode(const ConsensusMessage& message);
Result<ConsensusMessage> decode_consensus(ConstBytes bytes);

// The store's vote: what it has accepted.
std::string encode_vote(const Accepted& accepted);
Result<Accepted> decode_vote(const std::string& text);

}  // namespace ringdist
