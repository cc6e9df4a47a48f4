// Executes schedules without data: an element's value is the history of how it came to be, so that
// a wrong, missing or doubled contribution shows for every input at once.
//
// The network is the hardest one that a schedule has to live with: a channel per ordered pair of
// ranks that holds one message and delivers in order. A message is a step's whole range. Steps run
// when those before them that touch the same elements are done; a step with several peers needs all
// its channels at once; a relay first receives, then passes on.
//
// Not thread-safe; one Checker checks one set of schedules in any number of orders.
#pragma once

#include <bitset>
#include <cstdint>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "algorithm/schedule.h"

namespace ringdist::symbolic {

inline constexpr int kMaxSize = 64;

// A collective as all its ranks see it.
struct Case {
  Collective kind = Collective::kAllreduce;
  int size = 1;
  int64_t count = 0;
  int root = 0;
  bool rank_ordered = false;  // each sum must be one reduce over ranks 0, 1, ... in this order
  // Allgather, reduce-scatter, alltoall: parts[a][b] elements of rank a concern rank b. Empty:
  // `count`. All rows of a reduce-scatter are equal, and so are all columns of an allgather.
  std::vector<std::vector<int64_t>> parts = {};
  std::vector<std::vector<int>> hosts = {};  // ranks of each; empty: one host

  int64_t moved(int from, int to) const;
  // Elements of `from`'s input that concern ranks before `to`.
  int64_t sent_before(int from, int to) const;
};

Shape shape_of(const Case& what, int rank);

struct Counts {
  int64_t input = 0;
  int64_t output = 0;
};
// Elements of a rank's buffers.
Counts counts_of(const Case& what, int rank);

// An element of a rank's input, or of its output where it works in place.
struct Origin {
  int rank;
  int64_t element;
};
// Which element must end as `element` of a rank's output if nothing is reduced there. A reduce
// leaves all outputs but the root's as they were.
Origin origin_of(const Case& what, int rank, int64_t element);

std::vector<Schedule> build_all(const Algorithm& algorithm, const Case& what);

// The schedules with each step cut into steps of at most `segment_count` elements, in order.
std::vector<Schedule> cut(const std::vector<Schedule>& schedules, int64_t segment_count);

// What is wrong with the schedules (one per rank) before anything runs, or "": ranges inside their
// buffers and equal within a step, input never written, nor the output by those who do not reduce
// to it, edges that pair up with equal counts and fitting marks.
std::string structural_problem(const Case& what, const std::vector<Schedule>& schedules);

class Checker {
 public:
  // Requires schedules without a structural problem.
  Checker(const Case& what, const std::vector<Schedule>& schedules);

  // Runs every rank and checks the results; returns what went wrong, or "". In program order a step
  // waits for all steps before it on its rank; else the seed picks among those that can run.
  std::string run_in_program_order();
  std::string run_in_random_order(uint64_t seed);

 private:
  using Value = int;  // index into terms_; 0 is what nobody wrote
  // A leaf (no operands): what `rank` brought at `element`. Else a reduce of the operands.
  struct Term {
    int rank = -1;
    int64_t element = -1;
    bool finish = false;
    std::vector<Value> operands;
  };
  struct Edge {
    int channel;
    int index;  // position among all messages of its channel
  };
  // A step, or one half of a relay.
  struct Action {
    int rank;
    int step;
    StepKind kind;  // never kRelay
    Range range;
    std::vector<Source> sources;
    bool finish = false;
    std::vector<Edge> in;
    std::vector<Edge> out;
    std::vector<int> after;  // actions that touched what this one touches
  };
  using Ranks = std::bitset<kMaxSize>;
  struct Channel {
    std::vector<int> senders;    // action that sends message i
    std::vector<int> receivers;  // action that receives message i
    int sent = 0;
    int received = 0;
    std::vector<Value> message;
    Ranks known;
    bool full() const { return sent > received; }
  };

  void add_actions(int rank, const Schedule& schedule);
  void add_dependences(size_t first);
  int channel(int from, int to) const { return from * what_.size + to; }

  void add_leaves();
  Value leaf(int rank, int64_t element) const {
    return first_leaf_[static_cast<size_t>(rank)] + static_cast<Value>(element);
  }
  // The one value that is this reduce of these operands.
  Value reduce_of(bool finish, std::vector<Value> operands);
  std::vector<Value>& memory(int rank, BufferId buffer);
  void reset(const std::vector<std::vector<int>>& after);
  std::string run(const std::vector<std::vector<int>>& after, std::mt19937_64* random);
  void wake(int action);
  bool can_run(int action) const;
  std::string execute(int action);
  std::string store_result(const Action& action, std::vector<std::vector<Value>> arrived);
  std::string stuck() const;
  std::string wrong_result();
  std::string wrong_value(int rank, int64_t element, Value value);
  std::string wrong_sum(Value sum, int64_t element);

  Case what_;
  std::vector<int64_t> scratch_counts_;
  std::vector<Action> actions_;  // rank after rank
  std::vector<Term> terms_;
  std::vector<Value> first_leaf_;  // of each rank
  struct HashOfValues {
    size_t operator()(const std::vector<Value>& values) const;
  };
  std::unordered_map<std::vector<Value>, Value, HashOfValues> reduces_[2];  // [finish]

  // State of one run.
  std::vector<Channel> channels_;
  std::vector<std::vector<Value>> memory_;  // by rank and buffer
  std::vector<int> waits_for_;              // per action: unfinished ones it comes after
  std::vector<std::vector<int>> before_;    // per action: those that come after it
  std::vector<bool> woken_;
  std::vector<bool> done_;
  std::vector<Ranks> known_;  // per action: ranks whose start it must have come after
  std::vector<int> runnable_;
};

// All of the above: structure, program order, and `orders` random orders from `seed` on.
std::string problem(const Case& what, const std::vector<Schedule>& schedules, int orders,
                    uint64_t seed);

}  // namespace ringdist::symbolic
