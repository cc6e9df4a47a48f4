// State of both ends of an edge. An edge carries all messages of one send step to one receive step.
// RecvEdge keeps the segments that have arrived and decides on grants; SendEdge tracks how many
// segments may be sent.
//
// Segments are numbered from 0 and consumed in order. A grant is cumulative: "until n" permits all
// segments below n.
//
// Threads: the caller holds the lane's progress lock. Errors: misuse fails a check.
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

// Receiving end of an edge. Keeps segments that arrived before they could be used, and counts the
// segments that the sender may still send.
class RecvEdge {
 public:
  enum class State : uint8_t {
    kQuiet,    // no grant is outstanding, and the sender has not requested one
    kAwaited,  // the sender waits for a grant that did not fit into the budget
    kGranted,  // a grant is outstanding
    kDone,     // all segments have been consumed
  };

  // A segment that has arrived and waits to be consumed. `eager` means that it was sent on eager
  // credit.
  struct KeptSegment {
    PooledBuffer data;
    bool eager;
  };

  // Input of grant().
  struct GrantTerms {
    int64_t window = 0;   // segments that may be in flight or wait here
    int64_t bytes = 0;    // memory per segment
    bool oldest = false;  // the op is its group's oldest: one segment is granted even if the budget
                          // is used up
    bool unsolicited = false;  // the sender has neither sent a request nor data
    TimePoint now;
  };

  // `segments` is the number of segments of the edge. `budget` is shared by all edges of the lane
  // and must outlive the edge.
  RecvEdge(const EdgeId& edge, int64_t segments, GrantBudget& budget)
      : edge_(edge), segments_(segments), budget_(budget) {}

  State state() const { return state_; }
  int peer() const { return edge_.peer; }
  const EdgeId& edge() const { return edge_; }

  // Returns true if the segment belongs to the edge and has not arrived before.
  bool expects(int64_t segment) const {
    return segment >= consumed_ && segment < segments_ && !kept_.contains(segment);
  }
  // Returns true if some segments have not arrived.
  bool lacks_any() const { return here() < segments_; }
  bool has(int64_t segment) const { return kept_.contains(segment); }
  const KeptSegment& kept(int64_t segment) const { return kept_.at(segment); }
  size_t kept_count() const { return kept_.size(); }
  int64_t granted_until() const { return granted_; }
  // If the segment is the first one that the last measured grant permitted, returns the time of
  // that grant.
  std::optional<TimePoint> answers_grant(int64_t segment) const;

  // Keeps a segment that arrived before it could be used.
  void keep(int64_t segment, KeptSegment kept) { kept_.emplace(segment, std::move(kept)); }
  // Marks the next segment as consumed and frees its memory. `bytes_per_segment` is the amount that
  // a grant reserves in the budget for each segment.
  void consume(int64_t bytes_per_segment);
  // Records that the sender has requested a grant.
  void ask();
  // Returns true if a grant should be sent: the sender waits for one, or has used most of the last.
  bool wants_grant(int64_t window) const;
  // Tries to grant more segments and reserves their memory in the budget. Returns the new limit
  // "until" to send to the sender. Returns nothing if the budget has no room or nothing new can be
  // granted. Call it only if wants_grant().
  std::optional<int64_t> grant(const GrantTerms& terms);
  // Drops kept segments and returns the reserved memory to the budget. This is the last call.
  void stop();

 private:
  // Returns the number of segments that have arrived: consumed and kept ones.
  int64_t here() const { return consumed_ + static_cast<int64_t>(kept_.size()); }
  // Changes the amount that this edge reserves in the budget to `bytes`.
  void reserve(int64_t bytes);

  EdgeId edge_;
  int64_t segments_;
  std::reference_wrapper<GrantBudget> budget_;
  State state_ = State::kQuiet;
  std::map<int64_t, KeptSegment> kept_;  // by segment number
  int64_t consumed_ = 0;
  int64_t granted_ = 0;        // segments below this are granted
  int64_t reserved_ = 0;       // bytes of the budget reserved for the grant
  int64_t first_allowed_ = 0;  // first segment of the grant that is being timed
  TimePoint granted_at_;       // time of that grant
};

// Sending end of an edge. Tracks which segments are granted, have been given to the transport, and
// have completed. A completed segment no longer needs its memory.
class SendEdge {
 public:
  enum class State : uint8_t {
    kOpen,    // some segments have not been sent
    kAsking,  // the same, and a grant has been requested
    kSent,    // all segments have been given to the transport
    kDone,    // all sends have completed
  };

  SendEdge(const EdgeId& edge, int64_t segments) : edge_(edge), segments_(segments) {}

  State state() const { return state_; }
  int peer() const { return edge_.peer; }
  const EdgeId& edge() const { return edge_; }

  // Returns the first segment that has not been sent, or the number of segments if all have been.
  int64_t next() const { return next_; }
  bool all_sent() const { return next_ == segments_; }
  // Returns true if next() is granted.
  bool granted() const { return next_ < granted_; }
  int64_t granted_until() const { return granted_; }
  // Segments [0, completed()) have completed.
  int64_t completed() const { return completed_; }

  // Records that next() has been given to the transport. At least one segment must be unsent.
  void sent();
  // Records that a grant is needed. Returns true if a request must be sent, false if one is
  // pending.
  bool ask();
  // Records a grant of all segments below `until`. A smaller value than before changes nothing.
  void grant(int64_t until);
  // Records that the send of the segment has completed. Returns false if that was recorded before.
  bool complete(int64_t segment);
  // Marks all segments sent so far as completed, because the peer has departed. Returns false if
  // they already were.
  bool complete_sends();

 private:
  void update_state();

  EdgeId edge_;
  int64_t segments_;
  State state_ = State::kOpen;
  int64_t next_ = 0;
  int64_t granted_ = 0;
  int64_t completed_ = 0;
  // Completed out of order, which is rare: transports mostly keep the order.
  std::vector<int64_t> ahead_;
};

}  // namespace ringdist
