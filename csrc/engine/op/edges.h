// Both ends of an edge. RecvEdge keeps the segments that have arrived, SendEdge tracks those that
// may be sent.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/scratch_pool.h"
#include "engine/op/flow_control.h"
#include "plan/compiled_schedule.h"

namespace ringdist {

// The receiving end of an edge: which of its segments have come and wait, and how many more may.
class RecvEdge {
 public:
  enum class State : uint8_t {
    kQuiet,    // no grant is out, and the sender has not asked for one
    kAwaited,  // the sender waits for a grant, for which there was no memory
    kGranted,  // a grant is out
    kDone,     // all segments have been consumed
  };

  struct KeptSegment {
    PooledBuffer data;
    bool eager;
  };

  // What a grant is made from.
  struct GrantTerms {
    int64_t window = 0;        // segments that may be on their way or wait here
    int64_t bytes = 0;         // that each may take
    bool oldest = false;       // has a slot though the budget is used up
    bool unsolicited = false;  // the sender has neither asked nor sent anything
    TimePoint now;
  };

  RecvEdge(const EdgeId& edge, int64_t segments, GrantBudget& budget)
      : edge_(edge), segments_(segments), budget_(budget) {}

  State state() const { return state_; }
  int peer() const { return edge_.peer; }
  const EdgeId& edge() const { return edge_; }

  // Has not come before, and is one of the edge's.
  bool expects(int64_t segment) const {
    return segment >= consumed_ && segment < segments_ && !kept_.contains(segment);
  }
  // Not all segments have come.
  bool lacks_any() const { return here() < segments_; }
  bool has(int64_t segment) const { return kept_.contains(segment); }
  const KeptSegment& kept(int64_t segment) const { return kept_.at(segment); }
  size_t kept_count() const { return kept_.size(); }
  int64_t granted_until() const { return granted_; }
  // If it is the first to come of those that some grant allowed: when that was.
  std::optional<TimePoint> answers_grant(int64_t segment) const;

  // It came before it can be used.
  void keep(int64_t segment, KeptSegment kept) { kept_.emplace(segment, std::move(kept)); }
  // The next segment has been used up: its memory is free again.
  void consume(int64_t bytes_per_segment);
  // The sender has something, and no credit for it.
  void ask();
  // A grant is due: the sender waits for one, or has little left of the last.
  bool wants_grant(int64_t window) const;
  // The segment below which all may be sent now, if the sender is to be told of more than it knows.
  std::optional<int64_t> grant(const GrantTerms& terms);
  // Nothing is wanted any more; what was promised is given back. The last call.
  void stop();

 private:
  // Segments that have come, or are known to: consumed ones and kept ones.
  int64_t here() const { return consumed_ + static_cast<int64_t>(kept_.size()); }
  void reserve(int64_t bytes);

  EdgeId edge_;
  int64_t segments_;
  std::reference_wrapper<GrantBudget> budget_;
  State state_ = State::kQuiet;
  std::map<int64_t, KeptSegment> kept_;  // by segment: arrived and not yet consumed
  int64_t consumed_ = 0;
  int64_t granted_ = 0;   // segments below this may be sent to us
  int64_t reserved_ = 0;  // bytes of the budget that stand behind the grant
  int64_t first_allowed_ = 0;
  TimePoint granted_at_;
};

// The sending end of an edge: which of its segments may go, have gone, and need their memory no
// more.
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
