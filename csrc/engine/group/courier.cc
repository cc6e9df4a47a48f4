#include "engine/group/courier.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/op/run.h"

namespace ringdist {

void Courier::stamp(MessageHeader& header) {
  header.generation = generation_;
  header.source = flow_.rank;
  header.nonce = nonce_;
  header.credit = flow_.early[header.destination].report();
}

void Courier::count_sent(const MessageHeader& header, size_t payload) {
  if (header.early) flow_.early[header.destination].sent(payload);
  Statistics::add(lane_.statistics.bytes_sent, payload);
  Statistics::add(lane_.statistics.messages_sent, 1);
}

void Courier::send(MessageHeader header, ConstBytes payload, Ticket ticket) {
  stamp(header);
  count_sent(header, payload.size());
  const GroupMember& to = peers_[header.destination].member;
  to.transport->send(to.context, header_bytes(header), payload, ticket);
}

void Courier::withdraw(int peer, Ticket ticket) {
  const GroupMember& to = peers_[peer].member;
  to.transport->withdraw(to.context, ticket);
}

void Courier::send_control(MessageHeader header) {
  stamp(header);
  Statistics::add(lane_.statistics.control_messages, 1);
  const GroupMember& to = peers_[header.destination].member;
  // A broken connection is reported by the transport; nothing hangs on this one message.
  to.transport->send(to.context, header_bytes(header), {}, kNoTicket);
}

// Null if they lie behind several.
Transport* Courier::common_transport(std::span<const EdgeName> to) const {
  Transport* const first = peers_[to[0].peer].member.transport;
  const bool common = std::ranges::all_of(
      to, [&](const EdgeName& edge) { return peers_[edge.peer].member.transport == first; });
  return common ? first : nullptr;
}

bool Courier::stages(std::span<const EdgeName> to, ConstBytes payload) const {
  const Transport* transport = common_transport(to);
  return transport != nullptr && transport->stages(payload);
}

Staged Courier::reserve(std::span<const EdgeName> to, size_t bytes) {
  if (Transport* transport = common_transport(to))
    if (const auto memory = transport->reserve(bytes)) return {*memory, transport, {}};
  const HeldBytes block(lane_.scratch, bytes);
  return {block.bytes(), nullptr, block};
}

void Courier::commit(const Staged& staged, size_t used, std::span<MessageHeader> headers,
                     std::span<const Ticket> tickets) {
  std::vector<Outgoing> out;
  try {
    out.reserve(headers.size());
  } catch (...) {
    if (staged.transport) staged.transport->commit(staged.bytes, 0, {});
    throw;
  }
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

void Courier::report_credit(int peer) {
  MessageHeader header{};
  header.type = MessageType::kCredit;
  header.destination = peer;
  send_control(header);
}

void Courier::when_credit_returns(int peer, Run& run, int step) {
  auto& blocked = peers_[peer].blocked;
  const std::pair waiting{&run, step};
  if (std::ranges::count(blocked, waiting) == 0) blocked.push_back(waiting);
}

void Courier::credit_returned(int peer, int64_t report) {
  if (!flow_.early[peer].returned(report)) return;
  for (const auto& [run, step] : std::exchange(peers_[peer].blocked, {})) run->queue(step);
}

void Courier::forget(const Run& run) {
  for (Peer& peer : peers_)
    std::erase_if(peer.blocked, [&](const auto& entry) { return entry.first == &run; });
}

}  // namespace ringdist
