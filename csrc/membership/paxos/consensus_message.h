// Messages of the group consensus, and their wire format. MembershipTransport carries the bytes,
// over connections of its own. Plain values; any thread.
//
// Decoders check everything that one message can show by itself, so that malformed bytes end in an
// Error of kind kProtocol and never in the state machine.
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

// Information that a voter adds to its promise. The proposer composes the next generation from it.
// When a voter sends it, its ops of the old generation have ended, so the content does not change
// any more.
struct PromiseInfo {
  int64_t first_unfinished = 0;     // number of its first op that did not finish
  std::string store;                // address of the store in use
  bool reaches_store = true;        // the voter gets answers from that store
  std::string offers_store;         // address at which it could serve a store, or empty
  std::vector<Newcomer> newcomers;  // processes that wait to join
  bool formed = true;               // the voter has the addresses of all present members
  uint32_t most = 0;                // newcomers are admitted up to so many members, 0 without limit
};

// Kinds of messages. The first five are those of single-decree Paxos. In the comments "proposer" is
// the proposer of the message's ballot, and "rank 0" is that of the new generation.
enum class ConsensusMessageKind : uint8_t {
  kPrepare,    // proposer -> all: starts a ballot, requests a promise
  kPromise,    // -> proposer: promise, with the value accepted before and PromiseInfo
  kRefuse,     // -> proposer: rejects a ballot, names the later one that was promised
  kAccept,     // proposer -> all: requests acceptance of the ballot's value
  kAccepted,   // -> proposer: the value is accepted
  kWait,       // proposer -> voters that have answered: others have not yet
  kReport,     // -> proposer: the kernel has reported deaths
  kDecided,    // -> all, also to members that are behind: the decision
  kAsk,        // to a member that is ahead: requests the decision of this generation
  kInstalled,  // -> rank 0: the sender has installed the new generation
  kBegun,      // rank 0 -> all: every survivor has installed it, so ops may begin
};

// Returns the name of a kind for logs and traces, such as "prepare".
std::string_view message_name(ConsensusMessageKind kind);

// One message of the group consensus. A comment behind an optional field names the kinds of
// messages that carry it.
struct ConsensusMessage {
  ConsensusMessageKind kind = ConsensusMessageKind::kPrepare;
  GenerationId generation;  // its members decide the next generation; they exchange this message
  // Ballot that the message belongs to, or as of which the decision holds. In kRefuse it is the
  // later ballot that the sender has promised.
  Ballot ballot;
  std::vector<int32_t> dead;         // ranks with a death that a kernel reported to a member
  std::optional<Accepted> accepted;  // kPromise
  std::optional<PromiseInfo> info;   // kPromise
  std::optional<Decision> decision;  // kAccept, kDecided
  // Decision that created `generation`. kBegun carries it, and so does every message to a newcomer
  // of that generation, which may not have received the decision.
  std::optional<Decision> made_by;
};

// Returns the wire format of `message`.
std::vector<std::byte> encode(const ConsensusMessage& message);
// Decodes and validates a message. Returns kProtocol if the bytes are malformed, if a field that
// the kind needs is missing, or if a decision in it does not follow the generation that it names.
Result<ConsensusMessage> decode_consensus(ConstBytes bytes);

// Encodes the store's vote: the value that the store has accepted, with its ballot. The text is the
// value of the vote's key in the store and may contain zero bytes.
std::string encode_vote(const Accepted& accepted);
// Decodes the text of encode_vote(). Returns kProtocol if it is malformed.
Result<Accepted> decode_vote(const std::string& text);

}  // namespace ringdist
