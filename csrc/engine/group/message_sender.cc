#include "engine/group/message_sender.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/op/op_execution.h"

namespace ringdist {

GroupMessageSender::GroupMessageSender(ProgressState& progress, GroupFlowState& flow,
                                       PeerTable& peers, uint64_t nonce, uint32_t generation)
    : progress_(progress), flow_(flow), peers_(peers), nonce_(nonce), generation_(generation) {
  for (Peer& peer : peers_) {
    const auto& [context, transport, where] = peer.member;
    const auto rank = static_cast<int>(&peer - &peers_[0]);
    peer.traffic = progress_.traffic.row(context, transport != nullptr ? transport->name() : "",
                                         where, !flow_.is_near(rank));
  }
}

void GroupMessageSender::stamp(MessageHeader& header) {
  header.generation = generation_;
  header.source = flow_.rank;
  header.nonce = nonce_;
  header.credit = flow_.eager[header.destination].report();
}

void GroupMessageSender::count_sent(const MessageHeader& header, size_t payload, SendId send_id) {
  if (header.eager) flow_.eager[header.destination].sent(payload);
  Statistics::add(progress_.statistics.bytes_sent, payload);
  Statistics::add(progress_.statistics.messages_sent, 1);
  PeerTraffic& traffic = *peers_[header.destination].traffic;
  traffic.sent(payload);
  if (traffic.on_other_host) progress_.completions.measure(send_id, traffic, progress_.now);
}

void GroupMessageSender::send(MessageHeader header, ConstBytes payload, SendId send_id) {
  stamp(header);
  count_sent(header, payload.size(), send_id);
  const GroupMember& to = peers_[header.destination].member;
  to.transport->send(to.context, header_bytes(header), payload, send_id);
}

void GroupMessageSender::revoke_payload(int peer, SendId send_id) {
  const GroupMember& to = peers_[peer].member;
  to.transport->revoke_payload(to.context, send_id);
}

void GroupMessageSender::send_control(MessageHeader header) {
  stamp(header);
  Statistics::add(progress_.statistics.control_messages, 1);
  const GroupMember& to = peers_[header.destination].member;
  // There is no completion: the transport reports a broken connection, and nothing depends on this
  // one message.
  to.transport->send(to.context, header_bytes(header), {}, kNoSendId);
}

// All edges are compared with the first, so `to` must not be empty.
Transport* GroupMessageSender::common_transport(std::span<const EdgeId> to) const {
  Transport* const first = peers_[to[0].peer].member.transport;
  const bool common = std::ranges::all_of(
      to, [&](const EdgeId& edge) { return peers_[edge.peer].member.transport == first; });
  return common ? first : nullptr;
}

bool GroupMessageSender::would_copy(std::span<const EdgeId> to, ConstBytes payload) const {
  const Transport* transport = common_transport(to);
  return transport != nullptr && transport->would_copy(payload);
}

StagedMessage GroupMessageSender::reserve(std::span<const EdgeId> to, size_t bytes) {
  if (Transport* transport = common_transport(to))
    if (const auto memory = transport->reserve(bytes)) return {*memory, transport, {}};
  const PooledBuffer block(progress_.scratch, bytes);
  return {block.bytes(), nullptr, block};
}

void GroupMessageSender::commit(const StagedMessage& staged, size_t used,
                                std::span<MessageHeader> headers,
                                std::span<const SendId> send_ids) {
  std::vector<OutgoingMessage> out;
  try {
    out.reserve(headers.size());
  } catch (...) {
    if (staged.transport) staged.transport->commit(staged.bytes, 0, {});
    throw;
  }
  for (size_t i = 0; i < headers.size(); ++i) {
    stamp(headers[i]);
    count_sent(headers[i], used, send_ids[i]);
    out.push_back(
        {peers_[headers[i].destination].member.context, header_bytes(headers[i]), send_ids[i]});
  }
  if (staged.transport) return staged.transport->commit(staged.bytes, used, out);
  for (size_t i = 0; i < out.size(); ++i)
    peers_[headers[i].destination].member.transport->send(out[i].peer, out[i].header,
                                                          staged.bytes.first(used), out[i].send_id);
}

void GroupMessageSender::report_credit(int peer) {
  MessageHeader header{};
  header.type = MessageType::kCredit;
  header.destination = peer;
  send_control(header);
}

void GroupMessageSender::await_credit(int peer, OpExecution& run, int step) {
  auto& blocked = peers_[peer].blocked;
  const std::pair waiting{&run, step};
  if (std::ranges::count(blocked, waiting) == 0) blocked.push_back(waiting);
}

void GroupMessageSender::on_credit(int peer, int64_t report) {
  if (!flow_.eager[peer].returned(report)) return;
  for (const auto& [run, step] : std::exchange(peers_[peer].blocked, {})) run->queue(step);
}

void GroupMessageSender::forget(const OpExecution& run) {
  for (Peer& peer : peers_)
    std::erase_if(peer.blocked, [&](const auto& entry) { return entry.first == &run; });
}

}  // namespace ringdist
