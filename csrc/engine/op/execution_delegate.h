// What a OpExecution needs of its group: who it is, flow control, the way out, and whom to tell of
// its end. The plain members are asked without a call.
//
// Every call comes with the lane's driver token held.
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

// Memory for one message to several peers: of the transport behind which they all lie, or of the
// lane's pool where that has none to give or they lie behind several. The peers' grants bound it.
struct StagedMessage {
  Bytes bytes;
  Transport* transport = nullptr;
  PooledBuffer block;
};

// Of one group on this rank.
struct GroupFlowState {
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
  std::vector<EagerCredit> eager;  // by peer
  InboundWindow inbound;

  // Known to be on our host.
  bool is_near(int peer) const {
    return !topology.host_of.empty() && topology.same_host(rank, peer);
  }
};

class ExecutionDelegate {
 public:
  ExecutionDelegate(ProgressState& progress, GroupFlowState flow)
      : progress(progress), flow(std::move(flow)) {}
  virtual ~ExecutionDelegate() = default;
  ExecutionDelegate(const ExecutionDelegate&) = delete;
  ExecutionDelegate& operator=(const ExecutionDelegate&) = delete;

  ProgressState& progress;
  GroupFlowState flow;

  // Sends data to header.destination, from memory that the ticket keeps alive.
  virtual void send(MessageHeader header, ConstBytes payload, SendId send_id) = 0;
  // The memory of a send may change; see Transport::revoke_payload().
  virtual void revoke_payload(int peer, SendId send_id) = 0;
  virtual void send_control(MessageHeader header) = 0;
  // A send of this to those would first be copied into one transport's memory: to reserve some of
  // that, and write there, saves it.
  virtual bool would_copy(std::span<const EdgeId> to, ConstBytes payload) const = 0;
  virtual StagedMessage reserve(std::span<const EdgeId> to, size_t bytes) = 0;
  // One message to each destination, with its ticket. Takes what was reserved also if it throws.
  virtual void commit(const StagedMessage& staged, size_t used, std::span<MessageHeader> headers,
                      std::span<const SendId> send_ids) = 0;
  void give_back(const StagedMessage& staged) { commit(staged, 0, {}, {}); }  // sends nothing

  // So much of a peer's early messages has been consumed that it must be told.
  virtual void report_credit(int peer) = 0;
  // Queues the step again when the peer has given back early credit.
  virtual void await_credit(int peer, OpExecution& run, int step) = 0;
  // Its edges have a slot whatever the limit on promises.
  virtual bool is_oldest(const OpExecution& run) const = 0;
  // Sends to it need not arrive: it has ended, or has destroyed the group.
  virtual bool departed(int peer) const = 0;

  // The group fails, on all ranks.
  virtual void fail(const Error& cause) = 0;
  virtual void send_failed(int peer, const Error& cause) = 0;
  // All steps are done. The OpExecution lives on until the driver looks for other work.
  virtual void finished(OpExecution& run) = 0;
};

}  // namespace ringdist
