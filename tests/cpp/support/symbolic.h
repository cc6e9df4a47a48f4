// Executes schedules symbolically: the value of an element is the history of its operations. A
// wrong, missing or doubled contribution thus shows for every possible input at once.
//
// The simulated network is the hardest one that a schedule must work with. Each ordered pair of
// ranks has a channel that holds one message and delivers in order, and a message is the whole
// range of a step. A step runs when the earlier steps that touch the same elements are done. A
// step with several peers needs all its channels at once; a relay first receives and then
// forwards.
//
// Not thread-safe. One Checker checks one set of schedules in any number of orders.
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

// A collective as seen by all its ranks together.
struct Case {
  Collective kind = Collective::kAllreduce;
  int size = 1;
  int64_t count = 0;
  int root = 0;
  bool rank_ordered = false;  // each sum must be one reduce over ranks 0, 1, ... in this order
  // For allgather, reduce-scatter and alltoall: parts[a][b] elements of rank a concern rank b.
  // Empty means `count` for all. All rows of a reduce-scatter are equal, and so are all columns of
  // an allgather.
  std::vector<std::vector<int64_t>> parts = {};
  std::vector<std::vector<int>> hosts = {};  // ranks of each host, or empty for one host

  int64_t moved(int from, int to) const;
  // Returns the number of elements of `from`'s input that concern ranks before `to`.
  int64_t sent_before(int from, int to) const;
};

Shape shape_of(const Case& what, int rank);

struct Counts {
  int64_t input = 0;
  int64_t output = 0;
};
// Returns the numbers of elements of a rank's buffers.
Counts counts_of(const Case& what, int rank);

// An element of a rank's input, or of its output if the collective works in place.
struct Origin {
  int rank;
  int64_t element;
};
// Returns the origin of `element` of a rank's final output, for collectives and ranks without
// reduction. A reduce leaves the outputs of all ranks but the root unchanged.
Origin origin_of(const Case& what, int rank, int64_t element);

std::vector<Schedule> build_all(const Algorithm& algorithm, const Case& what);

// Returns the schedules with each step cut into steps of at most `segment_count` elements, in
// order.
std::vector<Schedule> cut(const std::vector<Schedule>& schedules, int64_t segment_count);

// Checks the schedules (one per rank) without running them and returns a problem or "". Ranges
// must lie inside their buffers and have equal sizes within a step. Inputs must not be written,
// nor outputs by ranks that do not reduce to them. Edges must pair up with equal counts and
// matching marks.
std::string structural_problem(const Case& what, const std::vector<Schedule>& schedules);

class Checker {
 public:
  // The schedules must have no structural problem.
  Checker(const Case& what, const std::vector<Schedule>& schedules);

  // Each runs every rank, checks the results and returns a problem or "". In program order, a step
  // waits for all earlier steps of its rank; in random order, the seed picks among the steps that
  // can run.
  std::string run_in_program_order();
  std::string run_in_random_order(uint64_t seed);

 private:
  using Value = int;  // index into terms_; 0 is memory that was never written
  // A leaf (no operands) is the contribution of `rank` at `element`. Other terms reduce their
  // operands.
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
    std::vector<int> after;  // earlier actions that touched the same memory
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
  // Returns the unique value that is this reduction of these operands.
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
  std::vector<Action> actions_;  // grouped by rank, in rank order
  std::vector<Term> terms_;
  std::vector<Value> first_leaf_;  // by rank
  struct HashOfValues {
    size_t operator()(const std::vector<Value>& values) const;
  };
  std::unordered_map<std::vector<Value>, Value, HashOfValues> reduces_[2];  // by `finish`

  // State of one run.
  std::vector<Channel> channels_;
  std::vector<std::vector<Value>> memory_;  // by rank and buffer
  std::vector<int> waits_for_;            // by action: number of unfinished actions that it follows
  std::vector<std::vector<int>> before_;  // by action: actions that follow it
  std::vector<bool> woken_;
  std::vector<bool> done_;
  std::vector<Ranks> known_;  // by action: ranks with a start that happened before it
  std::vector<int> runnable_;
};

// Runs all checks: structure, program order, and `orders` random orders from `seed` on. Returns
// the first problem, or "".
std::string problem(const Case& what, const std::vector<Schedule>& schedules, int orders,
                    uint64_t seed);

}  // namespace ringdist::symbolic
