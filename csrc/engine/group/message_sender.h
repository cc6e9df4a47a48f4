// Takes a group's messages to its members: stamps them with the group's name and what is due of
// early credit, and counts them. Knows which steps wait for a member's early credit.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstdint>
#include <span>

#include "engine/group/peer_table.h"
#include "engine/op/execution_delegate.h"

namespace ringdist {

class MessageSender {
 public:
  MessageSender(ProgressState& progress, GroupFlowState& flow, PeerTable& peers, uint64_t nonce,
                uint32_t generation)
      : progress_(progress), flow_(flow), peers_(peers), nonce_(nonce), generation_(generation) {}

  // As of ExecutionDelegate.
  void send(MessageHeader header, ConstBytes payload, SendId send_id);
  void revoke_payload(int peer, SendId send_id);
  void send_control(MessageHeader header);
  bool would_copy(std::span<const EdgeId> to, ConstBytes payload) const;
  StagedMessage reserve(std::span<const EdgeId> to, size_t bytes);
  void commit(const StagedMessage& staged, size_t used, std::span<MessageHeader> headers,
              std::span<const SendId> send_ids);
  void report_credit(int peer);
  void await_credit(int peer, OpExecution& run, int step);

  // A member has consumed so much of what it was sent: steps that waited for that go on.
  void on_credit(int peer, int64_t report);
  // A OpExecution has ended: its steps wait for nothing.
  void forget(const OpExecution& run);

 private:
  Transport* common_transport(std::span<const EdgeId> to) const;
  void stamp(MessageHeader& header);
  void count_sent(const MessageHeader& header, size_t payload);

  ProgressState& progress_;
  GroupFlowState& flow_;
  PeerTable& peers_;
  const uint64_t nonce_;
  const uint32_t generation_;
};

}  // namespace ringdist
