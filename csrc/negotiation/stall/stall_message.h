// What ranks tell each other of calls that have waited long for some of them. As bytes:
// base/serialize.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"

namespace ringdist {

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

}  // namespace ringdist
