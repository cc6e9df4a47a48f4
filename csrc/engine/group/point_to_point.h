// Matches a group's sends and receives. It gives each send an identifier (PointToPointId) that both
// ends compute alike, and binds receives to messages that have arrived.
//
// A channel is a tag in a tag space. The i-th send from a to b in a channel matches the i-th
// receive that b posts for it. That may be a receive from a or from any source, whichever was
// posted first. A receive is bound when the first message of a send arrives; until then it can
// still match any of its sources. Messages that arrive before their receive are kept in an
// unexpected-message queue. Data of small messages is kept whole; a longer message sends only its
// header first, as a request.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/group/op_visitor.h"
#include "engine/group/unexpected_queue.h"
#include "engine/op/execution_delegate.h"
#include "engine/op/message.h"
#include "engine/op/op_execution.h"

namespace ringdist {

// Owns the OpExecutions of a group's sends and receives.
class PointToPoint {
 public:
  // `delegate` must outlive this object. `retire` takes over executions that have ended.
  PointToPoint(ExecutionDelegate& delegate, RetireExecution retire)
      : delegate_(delegate), retire_(std::move(retire)), unexpected_(delegate.progress.scratch) {}

  // Starts a send; binds a receive, or keeps it until a message arrives. An op on a device is only
  // kept, until ended_on_device(), because its data takes another path.
  void enqueue(std::shared_ptr<Op> op);
  void ended_on_device(const std::shared_ptr<Op>& op) { std::erase(on_device_, op); }
  // Processes a message with a PointToPointId. Messages without a matching receive are kept.
  void on_message(const MessageHeader& header, const Payload& payload);
  // Retires an execution that has finished.
  void finished(const OpExecution& run);

  // Ends the receives that have matched no message, except those on a device. It calls `tell` for
  // each of them.
  void abort_receives(const OpVisitor& tell);
  // Ends the sends for which `which` returns true. It calls `tell` for each of them.
  void abort_sends(const std::function<bool(const OpExecution& run)>& which, const OpVisitor& tell);
  // Stops every op and calls `tell` for each. If that throws, the remaining ops are left for
  // another call.
  void stop(const OpVisitor& tell);

  bool idle() const {
    return sends_.empty() && receives_.empty() && posted_count_ == 0 && on_device_.empty();
  }
  // Returns true for the bound receive with the lowest key. It is guaranteed a grant, so that at
  // least one receive can always progress.
  bool is_lowest_receive(const OpExecution& run) const;
  // Retries grants of the lowest bound receive.
  void grant_waiting();
  // Calls `each` for every unfinished op.
  void for_each(const OpVisitor& each) const;
  // Returns a line for each unfinished op and each kept message.
  std::string dump() const;

 private:
  // The rank of the other end, and the PointToPointId.
  using Key = std::pair<int, uint64_t>;
  using Runs = std::map<Key, OpExecutionPtr>;
  // State of a channel: receives that wait for a message, and messages that wait for a receive,
  // oldest first.
  struct Waiting {
    std::deque<std::shared_ptr<Op>> posted;
    std::deque<Key> arrived;
    bool empty() const { return posted.empty() && arrived.empty(); }
  };

  // Starts a send with the next identifier.
  void send(std::shared_ptr<Op> op);
  // Binds at most one receive of the channel to a message.
  void match(uint64_t channel);
  // Starts a bound receive and delivers its kept messages.
  void start(OpExecution& run, Key key);
  // Makes the schedule and the execution of an op.
  OpExecution& begin(Runs& runs, std::shared_ptr<Op> op, Key key);
  // Delivers a message to a bound receive. Fails the group if type or size differ.
  void deliver(OpExecution& run, const MessageHeader& header, const Payload& payload);

  ExecutionDelegate& delegate_;
  const RetireExecution retire_;
  std::map<int, uint32_t> sent_;  // by destination: number of sends so far, in all channels
  Runs sends_;
  Runs receives_;  // bound to a send
  std::vector<std::shared_ptr<Op>> on_device_;
  std::map<uint64_t, Waiting> waiting_;  // by channel
  UnexpectedQueue<Key> unexpected_;
  size_t posted_count_ = 0;  // receives that are not bound
};

}  // namespace ringdist
