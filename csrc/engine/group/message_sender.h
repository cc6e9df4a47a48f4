// Sends a group's messages. Fills in the group's nonce and the eager credit to return, and updates
// the counters. It also keeps the list of steps that wait for a peer's eager credit
// (Peer::blocked).
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <cstdint>
#include <span>

#include "engine/group/peer_table.h"
#include "engine/op/execution_delegate.h"

namespace ringdist {

// All references must outlive it.
class GroupMessageSender final : public MessageSender {
 public:
  GroupMessageSender(ProgressState& progress, GroupFlowState& flow, PeerTable& peers,
                     uint64_t nonce, uint32_t generation);

  void send(MessageHeader header, ConstBytes payload, SendId send_id) override;
  void revoke_payload(int peer, SendId send_id) override;
  void send_control(MessageHeader header) override;
  bool would_copy(std::span<const EdgeId> to, ConstBytes payload) const override;
  StagedMessage reserve(std::span<const EdgeId> to, size_t bytes) override;
  void commit(const StagedMessage& staged, size_t used, std::span<MessageHeader> headers,
              std::span<const SendId> send_ids) override;
  void report_credit(int peer) override;
  void await_credit(int peer, OpExecution& run, int step) override;

  // Processes the credit count of a message from `peer`. If credit was freed, queues the steps that
  // waited for it.
  void on_credit(int peer, int64_t report);
  // Removes the steps of an OpExecution that has ended from the lists of waiting steps.
  void forget(const OpExecution& run);

 private:
  // Returns the transport that reaches all of `to`, or null if there are several.
  Transport* common_transport(std::span<const EdgeId> to) const;
  // Sets the fields that are common to all messages of the group, including the returned credit.
  void stamp(MessageHeader& header);
  // Counts a message with data and charges it to eager credit if it uses that.
  void count_sent(const MessageHeader& header, size_t payload, SendId send_id);

  ProgressState& progress_;
  GroupFlowState& flow_;
  PeerTable& peers_;
  const uint64_t nonce_;
  const uint32_t generation_;
};

}  // namespace ringdist
