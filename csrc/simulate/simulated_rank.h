// One rank of a simulation: its schedule and the progress of each step. It runs steps by the same
// rules as engine/op (StepProgress, OpExecution), segment by segment but without bytes. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plan/compiled_schedule.h"

namespace ringdist {

// The state of one rank. The simulation reports segments that have arrived, left or been consumed,
// then calls work().
class SimulatedRank {
 public:
  // A sending end of an edge.
  struct Out {
    int step;
    int peer;
    uint32_t edge;
    bool uncoded;  // the edge is EdgeKind::kIntraHost
    int64_t sent = 0;
    int64_t left = 0;      // sends that have ended
    int64_t consumed = 0;  // by the receiver, as far as it has reported
  };
  // A receiving end of an edge.
  struct In {
    int step;
    int peer;
    uint32_t edge;
    int64_t arrived = 0;
  };

  // `window` is the largest number of segments of an edge that may be on their way or wait at the
  // receiver.
  SimulatedRank(const CompiledSchedule& schedule, int64_t window);

  size_t steps() const { return steps_.size(); }
  // Returns true if all steps are done.
  bool ended() const { return unfinished_ == 0; }
  const Out& out(int at) const { return outs_[static_cast<size_t>(at)]; }
  const In& in(int at) const { return ins_[static_cast<size_t>(at)]; }
  int outs() const { return static_cast<int>(outs_.size()); }
  // Returns the index of the receiving end of that edge from that peer, or -1.
  int find_in(int peer, uint32_t edge) const;
  // Returns true if the edge has more segments than the window, so that its sender must learn what
  // is consumed.
  bool needs_credit(int in) const {
    return steps_[static_cast<size_t>(ins_[static_cast<size_t>(in)].step)].segments > window_;
  }
  // Returns the fraction of a sent range that shared memory copies. The copy for a step's first
  // target costs 1, or kStoredCopy if the step or the reduce before it has just stored the data.
  // The other targets read the same copy.
  double copied_of(int out) const;
  // Returns the elements of a segment of out(at).
  int64_t count_of(int at, int64_t segment) const;

  // Record that a segment has arrived, that one has left, and that the receiver has consumed one.
  void arrived(int in);
  void left(int out);
  void consumed(int out);

  // An action of work(): a segment was sent, or a received one was consumed.
  struct Done {
    bool sent;  // otherwise consumed
    int at;     // index for out() or in()
    int64_t segment;
  };
  // Does everything that can be done and appends it to `done` in order. The caller sends the
  // segments, and reports consumed ones to their senders if needs_credit(). Returns false if there
  // was nothing to try.
  bool work(std::vector<Done>& done);

 private:
  // A step. Its pairs are index ranges [first, second) of the lists below.
  struct Step {
    StepKind kind;
    int64_t count;
    int64_t segments;
    std::pair<int, int> after, follows, before, in, out;  // index ranges of the lists below
    int64_t written = 0;
    bool queued = false;
    bool done = false;
    bool stored = false;  // its data was just stored, by itself or by the reduce before
  };

  bool writes(const Step& step) const { return step.kind != StepKind::kSend; }
  // Returns the elements of a step that later steps may use. With `finished`, its sends must have
  // ended as well.
  int64_t progress_of(const Step& step, bool finished) const;
  // Returns true if all segments have been written and sent.
  bool complete(const Step& step) const;
  // Returns true if the earlier steps allow this segment.
  bool ready(const Step& step, int64_t segment) const;
  bool can_write(const Step& step) const;
  bool advance(int step, std::vector<Done>& done);
  bool write(Step& step, std::vector<Done>& done);
  bool send(const Step& step, std::vector<Done>& done);
  // Queues a step for work(), because something that it waits for may have changed.
  void queue(int step);
  // Queues the steps that wait for this one, and counts it if it is done.
  void progressed(int step);

  int64_t segment_count_;
  int64_t window_;
  std::vector<Step> steps_;
  std::vector<Dependency> after_;
  std::vector<int> follows_;
  std::vector<int> before_;
  std::vector<In> ins_;
  std::vector<Out> outs_;
  std::map<std::pair<int, uint32_t>, int> in_of_;
  std::vector<int> queue_;
  size_t next_ = 0;  // index in queue_; earlier entries have been taken
  size_t unfinished_ = 0;
};

}  // namespace ringdist
