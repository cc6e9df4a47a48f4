// What a Run needs of its group: who it is, flow control, the way out, and whom to tell of its end.
// The plain members are asked without a call.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/scratch_pool.h"
#include "base/ticket.h"
#include "base/topology.h"
#include "engine/op/credit.h"
#include "engine/op/inbound_window.h"
#include "engine/op/lane_state.h"
#include "engine/op/message.h"
#include "plan/compiled_schedule.h"

namespace ringdist {

class Run;
class Transport;

// Memory for one message to several peers: of the transport behind which they all lie, or of the
// lane's pool where that has none to give or they lie behind several. The peers' grants bound it.
struct Staged {
  Bytes bytes;
  Transport* transport = nullptr;
  HeldBytes block;
};

// Of one group on this rank.
struct GroupFlow {
  GroupFlow(int rank, int size, int64_t early_window, Topology hosts = {})
      : rank(rank),
        size(size),
        early_window(early_window),
        topology(std::move(hosts)),
        early(static_cast<size_t>(size), EarlyCredit(early_window)) {}

  const int rank;
  const int size;
  const int64_t early_window;  // bytes
  const Topology topology;
  std::vector<EarlyCredit> early;  // by peer
  InboundWindow inbound;

  // Known to be on our host.
  bool is_near(int peer) const {
    return !topology.host_of.empty() && topology.same_host(rank, peer);
  }
};

class Port {
 public:
  Port(LaneState& lane, GroupFlow flow) : lane(lane), flow(std::move(flow)) {}
  virtual ~Port() = default;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  LaneState& lane;
  GroupFlow flow;

  // Sends data to header.destination, from memory that the ticket keeps alive.
  virtual void send(MessageHeader header, ConstBytes payload, Ticket ticket) = 0;
  // The memory of a send may change; see Transport::withdraw().
  virtual void withdraw(int peer, Ticket ticket) = 0;
  virtual void send_control(MessageHeader header) = 0;
  // A send of this to those would first be copied into one transport's memory: to reserve some of
  // that, and write there, saves it.
  virtual bool stages(std::span<const EdgeName> to, ConstBytes payload) const = 0;
  virtual Staged reserve(std::span<const EdgeName> to, size_t bytes) = 0;
  // One message to each destination, with its ticket. Takes what was reserved also if it throws.
  virtual void commit(const Staged& staged, size_t used, std::span<MessageHeader> headers,
                      std::span<const Ticket> tickets) = 0;
  void give_back(const Staged& staged) { commit(staged, 0, {}, {}); }  // sends nothing

  // So much of a peer's early messages has been consumed that it must be told.
  virtual void report_credit(int peer) = 0;
  // Queues the step again when the peer has given back early credit.
  virtual void when_credit_returns(int peer, Run& run, int step) = 0;
  // Its edges have a slot whatever the limit on promises.
  virtual bool is_oldest(const Run& run) const = 0;
  // Sends to it need not arrive: it has ended, or has destroyed the group.
  virtual bool gone(int peer) const = 0;

  // The group fails, on all ranks.
  virtual void fail(const Error& cause) = 0;
  virtual void send_failed(int peer, const Error& cause) = 0;
  // All steps are done. The Run lives on until the driver looks for other work.
  virtual void finished(Run& run) = 0;
};

}  // namespace ringdist
