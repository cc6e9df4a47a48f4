// What ranks tell each other of a timeline (timeline.h). As bytes: base/serialize.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"

namespace ringdist {

struct TimelineMessage {
  enum class Kind : uint8_t {
    kStart,    // record                                      rank 0 -> all
    kPing,     // what is your time?                          of other hosts -> rank 0
    kPong,     // that                                        rank 0 -> who asked
    kStop,     // record no more                              rank 0 -> all
    kStopped,  // all is written, there                     all -> rank 0
    kRead,     // send what is written, from there on       rank 0 -> who has stopped elsewhere
    kPart,     // some of it; nothing: that is all          -> rank 0
    kDone,     // rank 0 needs no more of it                rank 0 -> who has stopped
  };

  Kind kind = Kind::kStart;
  std::string path;              // kStart: of the whole; kStopped: where this rank has written
  bool marks_cycles = false;     // kStart
  bool is_copied = false;        // kDone: rank 0 has a file of its own
  int64_t time = 0;              // kPing: of who asks; kPong: the same; nanoseconds
  int64_t root_time = 0;         // kPong
  int64_t offset = 0;            // kRead, kPart: bytes
  std::vector<std::byte> bytes;  // kPart

  std::vector<std::byte> encode() const;
  static Result<TimelineMessage> decode(ConstBytes bytes);
};

}  // namespace ringdist
