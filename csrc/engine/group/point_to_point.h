// A group's sends and receives: gives each a name that both ends can work out, and binds receives
// to what has arrived.
//
// The i-th send of a to b with a tag - in a channel - meets the i-th receive that b posts for it:
// one that names a, or one for any source, whichever was posted first. A receive is bound when the
// first message of a send is here, so before that it may still turn out to be for any of its
// sources. What arrives before its receive is parked: data of small messages, of longer ones the
// header alone.
//
// Every call comes with the lane's driver token held.
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

class PointToPoint {
 public:
  PointToPoint(ExecutionDelegate& delegate, RetireExecution retire)
      : delegate_(delegate), retire_(std::move(retire)), unexpected_(delegate.progress.scratch) {}

  // Starts a send, binds a receive or keeps it until something arrives. One on a device is only
  // kept, until ended_on_device(): its data goes another way.
  void enqueue(std::shared_ptr<Op> op);
  void ended_on_device(const std::shared_ptr<Op>& op) { std::erase(on_device_, op); }
  void on_message(const MessageHeader& header, const Payload& payload);
  void finished(const OpExecution& run);

  // Ends the receives that have matched no message, except those on a device. It calls `tell` for
  // each of them.
  void abort_receives(const OpVisitor& tell);
  // Ends the sends for which `which` returns true. It calls `tell` for each of them.
  void abort_sends(const std::function<bool(const OpExecution& run)>& which, const OpVisitor& tell);
  // Tells each op, none of which may run on; what throws half-way leaves the rest for another call.
  void stop(const OpVisitor& tell);

  bool idle() const {
    return sends_.empty() && receives_.empty() && posted_count_ == 0 && on_device_.empty();
  }
  // Of those that are bound, the one with the lowest name: one of them may always go on.
  bool is_lowest_receive(const OpExecution& run) const;
  void grant_waiting();
  // Calls each for every op that is not finished.
  void for_each(const OpVisitor& each) const;
  std::string dump() const;

 private:
  // The other end, and the name.
  using Key = std::pair<int, uint64_t>;
  using Runs = std::map<Key, OpExecutionPtr>;
  // Of one channel: receives that wait for a message, messages that wait for a receive, oldest
  // first.
  struct Waiting {
    std::deque<std::shared_ptr<Op>> posted;
    std::deque<Key> arrived;
    bool empty() const { return posted.empty() && arrived.empty(); }
  };

  void send(std::shared_ptr<Op> op);
  void match(uint64_t channel);
  void start(OpExecution& run, Key key);
  OpExecution& begin(Runs& runs, std::shared_ptr<Op> op, Key key);
  void deliver(OpExecution& run, const MessageHeader& header, const Payload& payload);

  ExecutionDelegate& delegate_;
  const RetireExecution retire_;
  std::map<int, uint32_t> sent_;  // destination -> sends so far, in all channels
  Runs sends_;
  Runs receives_;  // bound
  std::vector<std::shared_ptr<Op>> on_device_;
  std::map<uint64_t, Waiting> waiting_;  // by channel
  UnexpectedQueue<Key> unexpected_;
  size_t posted_count_ = 0;
};

}  // namespace ringdist
