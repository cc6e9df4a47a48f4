// Messages of a Group: out with credit stamped on them, in to the op that they belong to.
#include <algorithm>

#include "engine/group.h"
#include "transport/fan_out.h"

namespace ringdist {

void Group::stamp(MessageHeader& header) {
  header.generation = generation_;
  header.source = config_.rank;
  header.nonce = nonce_;
  header.credit = peers_[header.destination].credit.report();
}

void Group::count_sent(const MessageHeader& header, size_t payload) {
  if (header.early) peers_[header.destination].credit.sent(payload);
  Statistics::add(statistics().bytes_sent, payload);
  Statistics::add(statistics().messages_sent, 1);
}

void Group::send_data(MessageHeader header, ConstBytes payload, SendDone done) {
  stamp(header);
  count_sent(header, payload.size());
  const GroupMember& to = peers_[header.destination].member;
  to.transport->send(to.context, header_bytes(header), payload, std::move(done));
}

void Group::send_control(MessageHeader header) {
  stamp(header);
  Statistics::add(statistics().control_messages, 1);
  const GroupMember& to = peers_[header.destination].member;
  // A broken connection is reported by the transport; nothing hangs on this one message.
  to.transport->send(to.context, header_bytes(header), {}, [](const Error&) {});
}

Staged Group::reserve(const std::vector<EdgeName>& to, size_t bytes) {
  Transport* transport = peers_[to[0].peer].member.transport;
  const bool one = std::all_of(to.begin(), to.end(), [&](const EdgeName& edge) {
    return peers_[edge.peer].member.transport == transport;
  });
  if (one)
    if (const auto memory = transport->reserve(bytes)) return {*memory, transport, nullptr};
  auto block = std::make_shared<PooledBlock>(scratch_pool(), bytes);
  return {block->bytes(), nullptr, block};
}

void Group::commit(const Staged& staged, size_t used, std::vector<MessageHeader>& headers,
                   SendDone done) {
  std::vector<Outgoing> out;
  for (MessageHeader& header : headers) {
    stamp(header);
    count_sent(header, used);
    out.push_back({peers_[header.destination].member.context, header_bytes(header)});
  }
  if (staged.transport) return staged.transport->commit(staged.bytes, used, out, std::move(done));
  const SendDone one_done =
      fan_out(out.size(),
              [block = staged.block, done = std::move(done)](const Error& error) { done(error); });
  for (size_t i = 0; i < out.size(); ++i)
    peers_[headers[i].destination].member.transport->send(out[i].peer, out[i].header,
                                                          staged.bytes.first(used), one_done);
}

void Group::consumed_early(int peer, size_t bytes) {
  EarlyCredit& credit = peers_[peer].credit;
  credit.consumed(bytes);
  if (!credit.must_report()) return;
  MessageHeader header{};
  header.type = MessageType::kCredit;
  header.destination = peer;
  send_control(header);
}

void Group::when_credit_returns(int peer, OpRun& run, int step) {
  auto& blocked = peers_[peer].blocked;
  for (const auto& [waiting, its_step] : blocked)
    if (its_step == step && waiting.lock().get() == &run) return;
  blocked.emplace_back(run.weak_from_this(), step);
}

void Group::on_message(const MessageHeader& header, ConstBytes payload) {
  if (failure_ || header.source < 0 || header.source >= size()) return;
  Peer& peer = peers_[header.source];
  if (peer.credit.returned(header.credit))
    for (auto& [run, step] : std::exchange(peer.blocked, {}))
      if (auto alive = run.lock()) queue(*alive, step);
  if (header.type == MessageType::kCredit) return;
  if (header.type == MessageType::kData) {
    Statistics::add(statistics().bytes_received, payload.size());
    Statistics::add(statistics().messages_received, 1);
  }
  if (SendName::names(header.op)) return point_to_point_.on_message(header, payload);
  if (auto it = runs_.find(header.op); it != runs_.end()) {
    const auto run = it->second;
    return deliver(*run, header, payload);
  }
  const auto is_it = [&](const auto& op) { return op->number == header.op; };
  // We have not called it yet, or it is a barrier that waits for what is before it.
  if (header.op > last_number_ || std::any_of(waiting_.begin(), waiting_.end(), is_it)) {
    parked_[header.op].push_back({header, pooled_copy(scratch_pool(), payload)});
    return;
  }
  // Our part is done; a peer that still sends to us calls something else.
  if (carries_fingerprint(header)) (void)agree(header.op, header.source, header.fingerprint);
}

void Group::deliver(OpRun& run, const MessageHeader& header, ConstBytes payload) {
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
