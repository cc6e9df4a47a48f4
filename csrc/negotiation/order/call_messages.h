// Messages of the negotiation. ReadyMessage goes up the tree and reports calls that are ready.
// DecisionMessage goes down and reports what to run. The encoding is that of base/serialize.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"

namespace ringdist {

// Properties of a named call that must be equal on all ranks. Negotiation compares the content but
// does not interpret it.
struct CallDescription {
  std::string content;  // encoded CallContent, which is compared; the other fields follow from it
  std::string words;    // for display, such as "allreduce (float32, [1000], Sum)"
  uint64_t batch = 0;   // calls with the same number may be fused; 0 for calls that run alone
  int64_t bytes = 0;    // size of the data
  bool needs_all = false;  // it cannot run with joined ranks

  bool operator==(const CallDescription& other) const { return content == other.content; }
};

// Identifies a call. `id` is what the root has assigned to its name and description. If it is 0,
// name and description are used.
struct CallName {
  uint64_t id = 0;
  std::string name;
  CallDescription description;
};

// One rank's own part of a call, such as the rows of an allgather. It is sent only if it has
// changed since the last call.
struct RankExtra {
  int rank;
  std::vector<int64_t> values;
};

// Reports that the sender and all ranks below it have made a call.
struct ReadyCall {
  CallName call;
  int rank = 0;  // a rank with this description
  std::vector<RankExtra> extras;
  std::string conflict;       // describes two ranks that disagree; empty if there are none
  std::optional<int> absent;  // a joined rank, which does not take part
  int last = 0;               // the rank that called last, by this report
};

// Message from a rank to its parent.
struct ReadyMessage {
  uint64_t seen = 0;  // number of decisions that the sender and all ranks below it have
  std::vector<ReadyCall> ready;
  std::optional<int> joined;  // set if all of them have joined: the last one

  std::vector<std::byte> encode() const;
  static Result<ReadyMessage> decode(ConstBytes bytes);
};

// A call that all ranks have made, and that is to be run.
struct DecidedCall {
  CallName call;  // has the id; has name and description, too, if it is new
  bool is_new = false;
  std::vector<RankExtra> extras;
  int last = 0;  // the rank that called last
};

// A call that ends without being run.
struct FailedCall {
  std::string name;
  std::string why;
};

// Message from a rank to its children. The root makes decisions, and other ranks forward them.
struct DecisionMessage {
  uint64_t position = 0;  // number of the decision, from 1; 0 for an acknowledgement only
  std::vector<std::vector<DecidedCall>> batches;
  std::vector<FailedCall> failed;
  std::optional<int> all_joined;  // set if all ranks have joined: the last one

  // Encodes the message. `received` is the number of messages that the sender has received from the
  // receiver, modulo 2^32.
  std::vector<std::byte> encode(uint32_t received) const;
  // Returns the message and `received`. Error: kProtocol.
  static Result<std::pair<DecisionMessage, uint32_t>> decode(ConstBytes bytes);
};

}  // namespace ringdist
