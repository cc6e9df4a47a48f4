// Messages and state of stall queries, by which ranks find out which ranks an open call waits for.
// Pure functions and data; one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"

namespace ringdist {

// An open call, as the rank reports it that waits for others.
struct StalledCall {
  std::string name;
  int64_t milliseconds = 0;
  bool is_late = false;  // it has waited so long that a warning is due
};

// The ranks that a call waits for, in words.
struct StallFinding {
  std::string name;
  std::string awaits;
};

// Message of a stall query. The encoding is that of base/serialize.h.
struct StallMessage {
  enum class Kind : uint8_t {
    kAsk,      // any rank to rank 0: which ranks do these calls wait for?
    kInquire,  // rank 0 to all: which of these calls have you made?
    kAnswer,   // all to rank 0: calls that are not made, and what the rank waits for
    kFound,    // rank 0 to all: the ranks that the calls wait for
  };

  Kind kind = Kind::kAsk;
  std::vector<StalledCall> calls;  // kAsk
  uint32_t query = 0;              // kInquire, kAnswer: number of the query, from 1
  std::vector<std::string> names;  // kInquire
  // kAnswer: a bit for each name that this rank has not called, the first name lowest
  uint64_t lacks = 0;
  bool has_joined = false;          // kAnswer: the rank has joined, so it is not waited for
  std::string instead;              // kAnswer: what the rank does instead, in words
  std::vector<StallFinding> found;  // kFound

  std::vector<std::byte> encode() const;
  static Result<StallMessage> decode(ConstBytes bytes);
};

// Collects calls and answers on rank 0, for one query at a time.
class StallQuery {
 public:
  // Limit of names in one query; further names wait for the next query.
  static constexpr size_t kNames = 16;

  explicit StallQuery(int size) : size_(size) {}

  // Adds calls that some rank waits for. They become part of the next query unless they are in this
  // one.
  void add(const std::vector<StalledCall>& calls);
  bool has_calls() const { return !next_.empty(); }

  // Begins a query with the calls that were added.
  void begin(TimePoint now);
  bool is_open() const { return is_open_; }
  uint32_t number() const { return number_; }
  TimePoint begun() const { return begun_; }
  std::vector<std::string> names() const;
  // Records an answer to the current query. Only the first answer of a rank counts.
  void answer(int rank, const StallMessage& message);
  bool all_have_answered() const { return static_cast<int>(answers_.size()) == size_; }

  // Ends the query. Returns the ranks that each call waits for, unless no rank or every rank has
  // made the call. `describe_rank` returns the name of a rank.
  std::vector<StallFinding> close(const std::function<std::string(int)>& describe_rank);
  // Return the late calls of the findings, and one line about all findings. The line has the form
  // "'a' (for 61 s) and 2 more wait for rank 1 ..., which ...".
  std::vector<std::string> late(const std::vector<StallFinding>& found) const;
  std::string line(const std::vector<StallFinding>& found) const;

 private:
  // Answer of one rank.
  struct Answer {
    uint64_t lacks;
    bool has_joined;
    std::string instead;
  };

  // Returns the ranks that a call waits for, in words.
  std::string awaited(size_t name, const std::function<std::string(int)>& describe_rank) const;

  const int size_;
  std::map<std::string, StalledCall> next_;  // by name
  std::vector<StalledCall> calls_;
  std::map<int, Answer> answers_;  // by rank
  uint32_t number_ = 0;
  TimePoint begun_;
  bool is_open_ = false;
};

}  // namespace ringdist
