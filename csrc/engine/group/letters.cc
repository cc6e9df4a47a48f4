#include "engine/group/letters.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ringdist {
namespace {

constexpr size_t kPartBytes = 16 * 1024;  // less than any transport's max_payload()

}  // namespace

ServiceChannel::ServiceChannel(ExecutionDelegate& port, std::shared_ptr<GroupService> correspondent)
    : port_(port), correspondent_(std::move(correspondent)) {}

void ServiceChannel::send(int peer, std::vector<std::byte> letter) {
  const auto memory = std::make_shared<const std::vector<std::byte>>(std::move(letter));
  const ConstBytes all(*memory);
  size_t begin = 0;
  do {
    const ConstBytes part = all.subspan(begin, std::min(kPartBytes, all.size() - begin));
    begin += part.size();
    MessageHeader header{};
    header.type = MessageType::kLetter;
    header.destination = peer;
    header.op = pairs_[peer].sent++;
    header.segment = begin == all.size();
    port_.send(header, part, port_.lane.tickets.issue({}, memory));
  } while (begin < all.size());
}

Error ServiceChannel::on_message(const MessageHeader& header, ConstBytes payload) {
  if (!correspondent_) return {ErrorKind::kProtocol, "ringdist: a letter to a group that has none"};
  PeerStream& pair = pairs_[header.source];
  pair.early.emplace(header.op, Part{header.segment != 0, {payload.begin(), payload.end()}});
  while (!has_ended_ && !pair.early.empty() && pair.early.begin()->first == pair.received) {
    Part part = std::move(pair.early.extract(pair.early.begin()).mapped());
    ++pair.received;
    pair.open.insert(pair.open.end(), part.bytes.begin(), part.bytes.end());
    if (!part.is_last) continue;
    const auto letter = std::exchange(pair.open, {});
    if (Error error = correspondent_->on_letter(header.source, letter)) return error;
  }
  return {};
}

}  // namespace ringdist
