// The sending end of an edge: which of its segments may go, have gone, and need their memory no
// more.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/compiled_schedule.h"

namespace ringdist {

class SendEdge {
 public:
  enum class State : uint8_t {
    kOpen,    // has segments that have not been sent
    kAsking,  // the same, and the receiver has been asked for a grant
    kSent,    // all have been given to the transport
    kDone,    // and it needs none of them any more
  };

  SendEdge(const EdgeId& edge, int64_t segments) : edge_(edge), segments_(segments) {}

  State state() const { return state_; }
  int peer() const { return edge_.peer; }
  const EdgeId& edge() const { return edge_; }

  // The first segment that has not been sent; `segments` when all have.
  int64_t next() const { return next_; }
  bool all_sent() const { return next_ == segments_; }
  // The receiver has a slot for next().
  bool granted() const { return next_ < granted_; }
  int64_t granted_until() const { return granted_; }
  // Segments [0, completed()) need their memory no more.
  int64_t completed() const { return completed_; }

  // next() has been given to the transport.
  void sent();
  // A grant is needed. True if the receiver must be asked, false if it has been.
  bool ask();
  // The receiver has slots for all segments below `until`. Older grants change nothing.
  void grant(int64_t until);
  // A send has ended. False if that was known.
  bool complete(int64_t segment);
  // The peer is gone: all that was sent has ended. False if that was known.
  bool complete_sends();

 private:
  void update_state();

  EdgeId edge_;
  int64_t segments_;
  State state_ = State::kOpen;
  int64_t next_ = 0;
  int64_t granted_ = 0;
  int64_t completed_ = 0;
  std::vector<int64_t> ahead_;  // ended, but one before them has not: transports keep order mostly
};

}  // namespace ringdist
