// Messages of a Group: out with credit stamped on them, in to the op that they belong to.
#include <algorithm>

#include "engine/group/group.h"

namespace ringdist {

void Group::stamp(MessageHeader& header) {
  header.generation = generation_;
  header.source = rank();
  header.nonce = nonce_;
  header.credit = flow.early[header.destination].report();
}

void Group::count_sent(const MessageHeader& header, size_t payload) {
  if (header.early) flow.early[header.destination].sent(payload);
  Statistics::add(lane.statistics.bytes_sent, payload);
  Statistics::add(lane.statistics.messages_sent, 1);
}

void Group::send(MessageHeader header, ConstBytes payload, Ticket ticket) {
  stamp(header);
  count_sent(header, payload.size());
  const GroupMember& to = peers_[header.destination].member;
  to.transport->send(to.context, header_bytes(header), payload, ticket);
}

void Group::send_control(MessageHeader header) {
  stamp(header);
  Statistics::add(lane.statistics.control_messages, 1);
  const GroupMember& to = peers_[header.destination].member;
  // A broken connection is reported by the transport; nothing hangs on this one message.
  to.transport->send(to.context, header_bytes(header), {}, kNoTicket);
}

Staged Group::reserve(std::span<const EdgeName> to, size_t bytes) {
  Transport* transport = peers_[to[0].peer].member.transport;
  const bool one = std::ranges::all_of(
      to, [&](const EdgeName& edge) { return peers_[edge.peer].member.transport == transport; });
  if (one)
    if (const auto memory = transport->reserve(bytes)) return {*memory, transport, {}};
  const HeldBytes block(lane.scratch, bytes);
  return {block.bytes(), nullptr, block};
}

void Group::commit(const Staged& staged, size_t used, std::span<MessageHeader> headers,
                   std::span<const Ticket> tickets) {
  std::vector<Outgoing> out;
  for (size_t i = 0; i < headers.size(); ++i) {
    stamp(headers[i]);
    count_sent(headers[i], used);
    out.push_back(
        {peers_[headers[i].destination].member.context, header_bytes(headers[i]), tickets[i]});
  }
  if (staged.transport) return staged.transport->commit(staged.bytes, used, out);
  for (size_t i = 0; i < out.size(); ++i)
    peers_[headers[i].destination].member.transport->send(out[i].peer, out[i].header,
                                                          staged.bytes.first(used), out[i].ticket);
}

void Group::report_credit(int peer) {
  MessageHeader header{};
  header.type = MessageType::kCredit;
  header.destination = peer;
  send_control(header);
}

void Group::when_credit_returns(int peer, Run& run, int step) {
  auto& blocked = peers_[peer].blocked;
  const std::pair waiting{&run, step};
  if (std::ranges::count(blocked, waiting) == 0) blocked.push_back(waiting);
}

void Group::on_message(const MessageHeader& header, ConstBytes payload) {
  if (ending_.failed() || header.source < 0 || header.source >= size()) return;
  Peer& peer = peers_[header.source];
  if (flow.early[header.source].returned(header.credit))
    for (const auto& [run, step] : std::exchange(peer.blocked, {})) run->queue(step);
  if (header.type == MessageType::kCredit) return;
  if (header.type == MessageType::kData) {
    Statistics::add(lane.statistics.bytes_received, payload.size());
    Statistics::add(lane.statistics.messages_received, 1);
  }
  if (SendName::names(header.op)) return point_to_point_.on_message(header, payload);
  if (auto it = runs_.find(header.op); it != runs_.end())
    return deliver(*it->second, header, payload);
  const auto is_it = [&](const auto& op) { return op->number == header.op; };
  // We have not called it yet, or it is a barrier that waits for what is before it.
  if (header.op > last_number_ || std::any_of(waiting_.begin(), waiting_.end(), is_it)) {
    parked_.park(header.op, header, payload);
    return;
  }
  // Our part is done; a peer that still sends to us calls something else.
  if (carries_fingerprint(header)) (void)agree(header.op, header.source, header.fingerprint);
}

void Group::deliver(Run& run, const MessageHeader& header, ConstBytes payload) {
  if (carries_fingerprint(header) && !agree(header.op, header.source, header.fingerprint)) return;
  switch (header.type) {
    case MessageType::kData:
      return run.on_data(header, payload);
    case MessageType::kRequest:
      return run.on_request(header);
    case MessageType::kGrant:
    case MessageType::kFirstGrant:
      return run.on_grant(header);
    case MessageType::kCredit:
      return;
  }
}

}  // namespace ringdist
