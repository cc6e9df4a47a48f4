// What rank 0 hears of calls that wait: from the ranks that ask, then from all. Pure.
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

// What ranks tell each other of calls that have waited long for some of them. As bytes:
// base/serialize.h.

// A call that has been open on the rank that sends it.
struct StalledCall {
  std::string name;
  int64_t milliseconds = 0;
  bool is_late = false;  // people are to hear of it
};

// For whom calls of that name wait, in words.
struct StallFinding {
  std::string name;
  std::string awaits;
};

struct StallMessage {
  enum class Kind : uint8_t {
    kAsk,      // for whom do these calls wait?                            any rank -> rank 0
    kInquire,  // who has made them?                                       rank 0 -> all
    kAnswer,   // all but those; instead it waits for others               all -> rank 0
    kFound,    // these wait, and for whom                                 rank 0 -> all
  };

  Kind kind = Kind::kAsk;
  std::vector<StalledCall> calls;  // kAsk
  uint32_t inquiry = 0;            // kInquire, kAnswer; numbered from 1
  std::vector<std::string> names;  // kInquire
  uint64_t lacks = 0;       // kAnswer: a bit for each of these names, the first is the lowest
  bool has_joined = false;  // kAnswer: so it has no part in them
  std::string instead;      // kAnswer: what the rank does, in words
  std::vector<StallFinding> found;  // kFound

  std::vector<std::byte> encode() const;
  static Result<StallMessage> decode(ConstBytes bytes);
};

class StallQuery {
 public:
  // Of one inquiry; more wait for the next one.
  static constexpr size_t kNames = 16;

  explicit StallQuery(int size) : size_(size) {}

  // Some rank asks for those: the next inquiry's, where they are not of this one.
  void add(const std::vector<StalledCall>& calls);
  bool has_calls() const { return !next_.empty(); }

  // A new one, with what was added.
  void begin(TimePoint now);
  bool is_open() const { return is_open_; }
  uint32_t number() const { return number_; }
  TimePoint begun() const { return begun_; }
  std::vector<std::string> names() const;
  // Of this one; each rank's first counts.
  void answer(int rank, const StallMessage& letter);
  bool all_have_answered() const { return static_cast<int>(answers_.size()) == size_; }

  // Ends it: for whom those calls wait that somebody has made, and not all have. `describe_rank`: a
  // rank's name.
  std::vector<StallFinding> close(const std::function<std::string(int)>& describe_rank);
  // Which of these are late, and a line about all of them: "'a' (for 61 s) and 2 more wait for
  // rank 1 ..., which ..."
  std::vector<std::string> late(const std::vector<StallFinding>& found) const;
  std::string line(const std::vector<StallFinding>& found) const;

 private:
  struct Answer {
    uint64_t lacks;
    bool has_joined;
    std::string instead;
  };

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
