// One rank of a walk: its schedule with what is needed of it, and how far each step has come. It
// runs steps by the rules of engine/op (Steps, Run), which counts segments, too; here they have no
// bytes. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plan/compiled_schedule.h"

namespace ringdist {

class SimulatedRank {
 public:
  struct Out {
    int step;
    int peer;
    uint32_t edge;
    bool uncoded;  // EdgeKind::kInside
    int64_t sent = 0;
    int64_t left = 0;      // sends that have ended
    int64_t consumed = 0;  // by the receiver, as far as is known here
  };
  struct In {
    int step;
    int peer;
    uint32_t edge;
    int64_t arrived = 0;
  };

  // `window`: the most segments of an edge that may be on their way or wait at its receiver.
  SimulatedRank(const CompiledSchedule& schedule, int64_t window);

  size_t steps() const { return steps_.size(); }
  bool ended() const { return unfinished_ == 0; }
  const Out& out(int at) const { return outs_[static_cast<size_t>(at)]; }
  const In& in(int at) const { return ins_[static_cast<size_t>(at)]; }
  int outs() const { return static_cast<int>(outs_.size()); }
  // Where the edge of that number from that peer ends here; -1 if nowhere.
  int find_in(int peer, uint32_t edge) const;
  // It has more segments than may be on their way: its sender waits for what is consumed.
  bool needs_credit(int in) const {
    return steps_[static_cast<size_t>(ins_[static_cast<size_t>(in)].step)].segments > window_;
  }
  // What shared memory makes of it, of what is sent: the first of a step's targets is copied to, or
  // half that where the step or another has just stored it; the others find it there.
  double copied_of(int out) const;
  // Elements of a segment of out(at).
  int64_t count_of(int at, int64_t segment) const;

  void arrived(int in);
  void left(int out);
  void consumed(int out);

  // Does what can be done, and says what: in its order.
  struct Done {
    bool sent;  // else consumed
    int at;     // of out() or in()
    int64_t segment;
  };
  // Returns false if nothing could be done.
  bool work(std::vector<Done>& done);

 private:
  struct Step {
    StepKind kind;
    int64_t count;
    int64_t segments;
    std::pair<int, int> after, follows, before, in, out;  // parts of the lists below
    int64_t written = 0;
    bool queued = false;
    bool done = false;
    bool stored = false;  // what it sends, by itself or by the reduce before
  };

  bool writes(const Step& step) const { return step.kind != StepKind::kSend; }
  int64_t progress_of(const Step& step, bool finished) const;
  bool complete(const Step& step) const;
  bool ready(const Step& step, int64_t segment) const;
  bool can_write(const Step& step) const;
  bool advance(int step, std::vector<Done>& done);
  bool write(Step& step, std::vector<Done>& done);
  bool send(const Step& step, std::vector<Done>& done);
  void queue(int step);
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
  size_t next_ = 0;  // of the queue; those before have been taken
  size_t unfinished_ = 0;
};

}  // namespace ringdist
