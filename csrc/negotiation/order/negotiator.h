// Agreement of the ranks of a group on the order of named calls, which each rank makes in an order
// of its own. A state machine without threads, clock and I/O; one thread at a time.
//
// Ranks form a tree. A rank reports a call to its parent once it and all ranks below it have made
// it. The root decides which calls run and in which batches, and sends the decision down.
//
// Each call therefore crosses each edge of the tree once, without polling. All ranks run the same
// calls in the same order.
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

// One rank's neighbours in the tree. The root is rank 0. The tree connects ranks inside hosts
// first, so that a host sends one message for all its ranks. Pure.
struct SpanningTree {
  // Children of a rank within its host, and of a host.
  static constexpr int kChildren = 4;

  int parent = -1;  // -1 on rank 0
  std::vector<int> children;

  // Returns the neighbours of a rank.
  static SpanningTree of(const Topology& topology, int rank);
};

// Describes how two descriptions with equal words differ.
using DescribeDifference =
    std::function<std::string(const CallDescription&, const CallDescription&)>;

// Ready count of one call on one rank of the tree. Its members are the children, each for all ranks
// below it, and the rank itself.
class ReadyCount {
 public:
  // `members` is the number of children plus one.
  ReadyCount(size_t members, DescribeDifference describe_difference)
      : describe_difference_(std::move(describe_difference)), is_ready_(members) {}

  // Records that a member is ready. `call` must have name and description. If they differ from
  // those of the first member, records a conflict in words. Returns false and does nothing if the
  // member was ready before.
  bool add(size_t member, ReadyCall call);

  // Returns true if all members are ready, except those with `excused`.
  bool is_complete(const std::vector<bool>& excused) const;
  // Returns a member that is not ready, or nullopt.
  std::optional<size_t> missing() const;
  // Returns the combined report of all members.
  ReadyCall take() { return std::move(call_); }

 private:
  std::string disagreement(const ReadyCall& call) const;

  const DescribeDifference describe_difference_;
  ReadyCall call_;
  bool is_empty_ = true;
  std::vector<bool> is_ready_;
};

// Functions that a Negotiator calls. They may call it back, except for flush().
class NegotiatorDelegate {
 public:
  virtual ~NegotiatorDelegate() = default;

  // Sends a message to a rank. Messages must arrive in order.
  virtual void send(int rank, std::vector<std::byte> message) = 0;

  // Runs a batch. All ranks, including joined ones, get the same batches in the same order.
  virtual void run(const std::vector<ResponseCache::AgreedCall>& batch) = 0;
  // Ends a call without running it, on all ranks. `why` describes what the ranks called.
  virtual void fail(const std::string& name, const std::string& why) = 0;
  // All ranks have joined. `last` is the rank that joined last.
  virtual void all_joined(int last) = 0;
  // See DescribeDifference.
  virtual std::string describe_difference(const CallDescription& one,
                                          const CallDescription& other) const = 0;
};

// Options of a Negotiator. cache_capacity must be the same on all ranks. The root uses its own
// values of the others.
struct NegotiatorOptions {
  size_t cache_capacity = 1024;     // number of names in the response cache
  int64_t fusion_bytes = 64 << 20;  // limit of a batch; a larger call runs alone
  int batches_in_flight = 2;  // limit; further calls wait for the next batch, which grows meanwhile
};

// One rank's part in the agreement. call(), join(), ran() and tune() only change the state.
// receive() passes a decision on to the children and applies it. flush() sends all other messages,
// and makes the decisions on the root.
class Negotiator {
 public:
  // `delegate` must outlive it.
  Negotiator(NegotiatorDelegate& delegate, const Topology& topology, int rank,
             NegotiatorOptions options);

  // Makes a call. No call of this name may be open on this rank: the last one was run or has
  // failed. The rank must not have joined.
  //
  // `extra` is set for calls in which each rank has values of its own, such as rows of an
  // allgather. All ranks receive the extras of all.
  void call(const std::string& name, CallDescription description,
            std::optional<std::vector<int64_t>> extra);
  // Joins: until all ranks have joined, this rank counts as ready for every call.
  void join();
  // Handles a message of its parent or of a child. Error kProtocol: the message is invalid. A part
  // of it may have been applied by then, so the group must end.
  Error receive(int rank, ConstBytes message);
  // Reports that a batch has run. Only the root needs this, and only for batches on its own rank.
  void ran();
  // Changes options for later decisions. Has an effect on the root only.
  void tune(int64_t fusion_bytes, int batches_in_flight);

  // Sends what is due, after any number of other calls. On the root, may also run batches.
  void flush();

  // Returns the number of names that some, but not all, of this rank and those below have called.
  size_t open() const { return tallies_.size(); }
  // Returns the number of entries in the response cache, including retired ones.
  size_t remembered() const { return table_.size(); }

 private:
  // Limit of messages that the parent has not acknowledged. What becomes ready meanwhile is
  // combined in the next message.
  static constexpr uint32_t kWindow = 4;
  // Number of decisions after which a rank acknowledges them, if it has nothing else to send.
  static constexpr uint64_t kTellSeen = 64;

  // State of one child.
  struct Child {
    int rank;
    uint64_t seen = 0;      // decisions that the child and all ranks below it have
    uint32_t received = 0;  // messages received from it
    uint32_t told = 0;      // number of these that were acknowledged
  };

  bool is_root() const { return tree_.parent < 0; }
  // The rank's own index among the members of a ReadyCount.
  size_t self() const { return children_.size(); }
  Error receive_up(Child& child, ConstBytes message);
  Error receive_down(ConstBytes message);
  // Adds a member's report to the ready count. Returns false if it was there.
  bool add(size_t member, ReadyCall call);
  // Sends the report of a complete call up, or queues it for decision on the root.
  void complete(const std::string& name);
  // Records that a member and all ranks below it have joined.
  void have_joined(size_t member, int last);
  // Applies a decision of the root.
  Error accept(const DecisionMessage& decision);
  // On the root: makes a decision if there is something to decide.
  void decide();
  std::vector<ReadyCall> next_batch();
  // On the root: enters a call of a decision into the response cache.
  DecidedCall enter(uint64_t position, ReadyCall call,
                    std::vector<ResponseCache::AgreedCall>& batch);
  void tell_children(const DecisionMessage& decision);
  // Applies the end of a decision: failed calls and joins.
  void end(const DecisionMessage& decision);
  void run(const std::vector<ResponseCache::AgreedCall>& batch);
  bool is_rank(int rank) const { return rank >= 0 && rank < size_; }
  bool makes_sense(const ReadyCall& call) const;
  // Returns the decision up to which no message here or below can need retired entries.
  uint64_t seen() const;

  NegotiatorDelegate& delegate_;
  const SpanningTree tree_;
  const int rank_;
  const int size_;
  NegotiatorOptions options_;
  ResponseCache table_;
  std::vector<Child> children_;
  std::map<std::string, ReadyCount> tallies_;  // ready counts by name
  // open calls of this rank, with the number of the last decision before the call
  std::map<std::string, uint64_t> mine_;
  std::vector<bool> joined_;  // by member: it and all ranks below it have joined
  // set if all members have joined, until it is reported: the last one
  std::optional<int> last_joined_;
  uint64_t position_ = 0;  // number of the last decision

  // Used by all ranks but the root: the next message to the parent, and counters for
  // acknowledgements.
  ReadyMessage next_;
  uint32_t sent_ = 0;
  uint32_t unseen_ = 0;
  uint64_t told_seen_ = 0;

  // Used by the root.
  std::deque<ReadyCall> ready_;
  std::vector<FailedCall> failed_;
  uint64_t last_id_ = 0;
  int in_flight_ = 0;
};

}  // namespace ringdist
