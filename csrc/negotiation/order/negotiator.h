// One rank's part in agreeing on the order of calls that ranks make by name, each in an order of
// its own. A state machine: no threads, no clock, no I/O; one thread at a time.
//
// A rank that makes a call tells its parent in a tree when all below it have, too; the root decides
// what is to run, and in which batches, and tells that down. So each readiness crosses each edge
// once, nothing is polled, and all ranks run the same calls in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/topology.h"
#include "negotiation/order/call_messages.h"
#include "negotiation/order/response_cache.h"

namespace ringdist {

// By which way ranks tell that they are ready: up to rank 0, inside hosts first, so that a host
// sends one message for all its ranks. Pure.

// One rank's place in it.
struct SpanningTree {
  // Of a rank inside its host, and of a host.
  static constexpr int kChildren = 4;

  int parent = -1;  // of rank 0
  std::vector<int> children;

  static SpanningTree of(const Topology& topology, int rank);
};

// Who is ready for one call, as one rank of the tree sees it: each of its children stands for all
// ranks below that.

// How two that have the same words differ, in words.
using DescribeDifference =
    std::function<std::string(const CallDescription&, const CallDescription&)>;

class ReadyCount {
 public:
  // `members`: the children, and the rank itself.
  ReadyCount(size_t members, DescribeDifference describe_difference)
      : describe_difference_(std::move(describe_difference)), is_ready_(members) {}

  // `call`: with its name and description. What it says otherwise than the first one is a conflict,
  // in words. False, and nothing is done: that member is ready already.
  bool add(size_t member, ReadyCall call);

  // All of them, but for those of which `excused` is true.
  bool is_complete(const std::vector<bool>& excused) const;
  // One that is not ready, or nothing.
  std::optional<size_t> missing() const;
  // Of all together.
  ReadyCall take() { return std::move(call_); }

 private:
  std::string disagreement(const ReadyCall& call) const;

  const DescribeDifference describe_difference_;
  ReadyCall call_;
  bool is_empty_ = true;
  std::vector<bool> is_ready_;
};

// What a Negotiator needs of who runs it; called in its functions. It may be called from these,
// too, but for flush().
class NegotiatorDelegate {
 public:
  virtual ~NegotiatorDelegate() = default;

  // Arrive in order.
  virtual void send(int rank, std::vector<std::byte> letter) = 0;

  // The same on all ranks, and in the same order, also on those that have joined.
  virtual void run(const std::vector<ResponseCache::AgreedCall>& batch) = 0;
  // The call ends everywhere without being run; `why`: who said what.
  virtual void fail(const std::string& name, const std::string& why) = 0;
  // `last`: the rank that did so last.
  virtual void all_joined(int last) = 0;
  // As of DescribeDifference.
  virtual std::string describe_difference(const CallDescription& one,
                                          const CallDescription& other) const = 0;
};

// cache_capacity is the same on all ranks; the root decides by the others.
struct NegotiatorOptions {
  size_t cache_capacity = 1024;     // names
  int64_t fusion_bytes = 64 << 20;  // of a batch; a call that is longer goes alone
  int batches_in_flight = 2;        // until one has run on the root the next waits, and grows
};

class Negotiator {
 public:
  // `delegate` outlives it.
  Negotiator(NegotiatorDelegate& delegate, const Topology& topology, int rank,
             NegotiatorOptions options);

  // None of that name is open on this rank: since the last one it was run or has failed. It has not
  // joined. `extra`: of calls that have some on all ranks: what each says for itself, as its rows;
  // all learn it.
  void call(const std::string& name, CallDescription description,
            std::optional<std::vector<int64_t>> extra);
  // Until all ranks have: this one is ready for whatever the others call.
  void join();
  // Of its parent or a child. Error: kProtocol, it makes no sense.
  Error receive(int rank, ConstBytes letter);
  // A batch has: the root is told by itself.
  void ran();
  // On the root: of what is decided from now on.
  void tune(int64_t fusion_bytes, int batches_in_flight);

  // Sends what there is to say, after any number of those.
  void flush();

  // Names that are open here or below.
  size_t open() const { return tallies_.size(); }
  // Names that are kept.
  size_t remembered() const { return table_.size(); }

 private:
  // Letters on their way to a rank that has not said that it has them. What comes up meanwhile goes
  // with the next one.
  static constexpr uint32_t kWindow = 4;
  // Decisions after which a rank that has nothing else to say tells that it has them.
  static constexpr uint64_t kTellSeen = 64;

  struct Child {
    int rank;
    uint64_t seen = 0;      // decisions, by all below
    uint32_t received = 0;  // letters of it
    uint32_t told = 0;      // of these it knows
  };

  bool is_root() const { return tree_.parent < 0; }
  size_t self() const { return children_.size(); }
  Error receive_up(Child& child, ConstBytes letter);
  Error receive_down(ConstBytes letter);
  bool add(size_t member, ReadyCall call);
  void complete(const std::string& name);
  void have_joined(size_t member, int last);
  Error accept(const DecisionMessage& decision);
  void decide();
  std::vector<ReadyCall> next_batch();
  DecidedCall enter(uint64_t position, ReadyCall call,
                    std::vector<ResponseCache::AgreedCall>& batch);
  void tell_children(const DecisionMessage& decision);
  void end(const DecisionMessage& decision);
  void run(const std::vector<ResponseCache::AgreedCall>& batch);
  bool is_rank(int rank) const { return rank >= 0 && rank < size_; }
  bool makes_sense(const ReadyCall& call) const;
  uint64_t seen() const;

  NegotiatorDelegate& delegate_;
  const SpanningTree tree_;
  const int rank_;
  const int size_;
  NegotiatorOptions options_;
  ResponseCache table_;
  std::vector<Child> children_;
  std::map<std::string, ReadyCount> tallies_;  // by name
  std::map<std::string, uint64_t> mine_;       // open here, and the last decision before the call
  std::vector<bool> joined_;                   // of the children and the rank itself
  std::optional<int> last_joined_;             // all have: the last one, until that is told
  uint64_t position_ = 0;                      // of the last decision

  // Of those but the root: what it says next, and how many letters its parent does not have.
  ReadyMessage next_;
  uint32_t sent_ = 0;
  uint32_t unseen_ = 0;
  uint64_t told_seen_ = 0;

  // Of the root.
  std::deque<ReadyCall> ready_;
  std::vector<FailedCall> failed_;
  uint64_t last_id_ = 0;
  int in_flight_ = 0;
};

}  // namespace ringdist
