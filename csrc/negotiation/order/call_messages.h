// What ranks tell each other of calls by name: that they are ready, up the tree; what is to run,
// down. As bytes: base/serialize.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"

namespace ringdist {

// What all ranks must say alike of an operation that they call by name. Negotiation does not look
// into it.
struct CallDescription {
  std::string content;     // as bytes; compared; the rest follows from it
  std::string words;       // for people: "allreduce (float32, [1000], Sum)"
  uint64_t batch = 0;      // calls of the same number may travel as one operation; 0: alone
  int64_t bytes = 0;       // that travel
  bool needs_all = false;  // it cannot run without the ranks that have joined

  bool operator==(const CallDescription& other) const { return content == other.content; }
};

// A call, by the id that the root has given its name and description; or, where it has none (0),
// by these.
struct CallName {
  uint64_t id = 0;
  std::string name;
  CallDescription description;
};

// What a rank says of its own part of a call, as the rows of an allgather; only where it is another
// than the last time.
struct RankExtra {
  int rank;
  std::vector<int64_t> values;
};

// The rank that sends it, and all below it, are ready.
struct ReadyCall {
  CallName call;
  int rank = 0;  // one whose description it is
  std::vector<RankExtra> extras;
  std::string conflict;       // what two of them say, where that differs
  std::optional<int> absent;  // one that has joined, and does not take part
  int last = 0;               // the rank that was ready last, as far as is known
};

struct ReadyMessage {
  uint64_t seen = 0;  // decisions that the sender and all below it have
  std::vector<ReadyCall> ready;
  std::optional<int> joined;  // all of them have; the last one

  std::vector<std::byte> encode() const;
  static Result<ReadyMessage> decode(ConstBytes bytes);
};

struct DecidedCall {
  CallName call;  // with id and, where it is new to all, with the rest
  bool is_new = false;
  std::vector<RankExtra> extras;
  int last = 0;  // as of ReadyCall
};

struct FailedCall {
  std::string name;
  std::string why;
};

struct DecisionMessage {
  uint64_t position = 0;  // from 1; 0: nothing is decided, this is a receipt
  std::vector<std::vector<DecidedCall>> batches;
  std::vector<FailedCall> failed;
  std::optional<int> all_joined;  // the last one

  std::vector<std::byte> encode(uint32_t received) const;
  // With how many letters the sender has received from whom it sends this to, modulo 2^32.
  static Result<std::pair<DecisionMessage, uint32_t>> decode(ConstBytes bytes);
};

}  // namespace ringdist
