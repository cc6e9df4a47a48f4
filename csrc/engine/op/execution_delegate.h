// Interfaces that an OpExecution uses to reach its group: MessageSender to send, and
// ExecutionDelegate for flow control and reports of completion and failure. The state that is read
// most often is in plain members, so that reading it needs no virtual call.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/payload.h"
#include "base/scratch_pool.h"
#include "base/topology.h"
#include "engine/op/flow_control.h"
#include "engine/op/message.h"
#include "engine/op/progress_state.h"
#include "plan/compiled_schedule.h"

namespace ringdist {

class OpExecution;
class Transport;

// Memory for one message to several peers. If one transport reaches all of them and has memory, it
// lies in the transport's buffers (`transport`). Otherwise it is a block of the scratch pool
// (`block`). The grants of the peers bound how much is in use.
struct StagedMessage {
  Bytes bytes;
  Transport* transport = nullptr;
  PooledBuffer block;
};

// Rank, topology and flow-control state of one group on this rank.
struct GroupFlowState {
  // `eager_window` is the eager credit per peer in bytes.
  GroupFlowState(int rank, int size, int64_t eager_window, Topology hosts = {})
      : rank(rank),
        size(size),
        eager_window(eager_window),
        topology(std::move(hosts)),
        eager(static_cast<size_t>(size), EagerCredit(eager_window)) {}

  const int rank;
  const int size;
  const int64_t eager_window;  // bytes
  const Topology topology;
  std::vector<EagerCredit> eager;  // eager credit, by peer
  InboundWindow inbound;           // limits compressed traffic from other hosts

  // Returns true if the topology has the peer on this rank's host.
  bool is_near(int peer) const {
    return !topology.host_of.empty() && topology.same_host(rank, peer);
  }
};

// Sends the messages of a group's executions. GroupMessageSender implements it.
class MessageSender {
 public:
  virtual ~MessageSender() = default;

  // Sends a data message, or a part of a service message, to header.destination. The completion
  // entry of `send_id` keeps the payload's memory alive until the send completes.
  virtual void send(MessageHeader header, ConstBytes payload, SendId send_id) = 0;
  // Declares the payload of a send that is still in flight invalid, because its memory is about to
  // change; see Transport::revoke_payload().
  virtual void revoke_payload(int peer, SendId send_id) = 0;
  // Sends a message without payload (request, grant or credit) to header.destination.
  virtual void send_control(MessageHeader header) = 0;
  // Returns true if a transport would first copy `payload` into its own memory to send it to `to`.
  // Then it is cheaper to reserve() that memory and to write the payload there.
  virtual bool would_copy(std::span<const EdgeId> to, ConstBytes payload) const = 0;
  // Returns memory of `bytes` bytes for one message to all of `to`. Each reservation needs exactly
  // one commit() or give_back().
  virtual StagedMessage reserve(std::span<const EdgeId> to, size_t bytes) = 0;
  // Sends the first `used` bytes to the destination of each header, with the send id at the same
  // index. The reservation is released even if this throws.
  virtual void commit(const StagedMessage& staged, size_t used, std::span<MessageHeader> headers,
                      std::span<const SendId> send_ids) = 0;
  // Releases the memory, sends nothing.
  void give_back(const StagedMessage& staged) { commit(staged, 0, {}, {}); }

  // Sends the credit count to `peer`, because half of the eager window has been consumed since the
  // last report.
  virtual void report_credit(int peer) = 0;
  // Queues the step again once the peer has returned eager credit.
  virtual void await_credit(int peer, OpExecution& run, int step) = 0;
};

// Callbacks from OpExecution to its group. `progress`, `flow` and `sender` are public for direct
// access.
class ExecutionDelegate {
 public:
  // `sender` is used later only, so it may be a member that is not yet constructed.
  ExecutionDelegate(ProgressState& progress, GroupFlowState flow, MessageSender& sender)
      : progress(progress), flow(std::move(flow)), sender(sender) {}
  virtual ~ExecutionDelegate() = default;
  ExecutionDelegate(const ExecutionDelegate&) = delete;
  ExecutionDelegate& operator=(const ExecutionDelegate&) = delete;

  ProgressState& progress;  // shared by all executions of the lane
  GroupFlowState flow;
  MessageSender& sender;

  // Returns true if the op is its group's oldest. Its edges get one segment even if the grant
  // budget is used up.
  virtual bool is_oldest(const OpExecution& run) const = 0;
  // Returns true if sends to the peer need not arrive: it was lost, has ended, or has destroyed the
  // group.
  virtual bool departed(int peer) const = 0;

  // Fails the group on all ranks.
  virtual void fail(const Error& cause) = 0;
  // Reports that the transport could not send to `peer`. The group decides whether that is a
  // failure.
  virtual void send_failed(int peer, const Error& cause) = 0;
  // Reports that all steps are done. The OpExecution stays alive until the dispatcher frees ended
  // executions, because it may be on the call stack.
  virtual void finished(OpExecution& run) = 0;
};

}  // namespace ringdist
