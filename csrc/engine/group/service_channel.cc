#include "engine/group/service_channel.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ringdist {
namespace {

constexpr size_t kPartBytes = 16 * 1024;  // less than any transport's max_payload()
// Limit of the parts of a message, and of those that wait for an earlier one.
constexpr uint64_t kMostParts = 4096;

}  // namespace

ServiceChannel::ServiceChannel(ExecutionDelegate& delegate, std::shared_ptr<GroupService> service)
    : delegate_(delegate), service_(std::move(service)) {}

void ServiceChannel::send(int peer, std::vector<std::byte> message) {
  const auto memory = std::make_shared<const std::vector<std::byte>>(std::move(message));
  const ConstBytes all(*memory);
  size_t begin = 0;
  do {
    const ConstBytes part = all.subspan(begin, std::min(kPartBytes, all.size() - begin));
    begin += part.size();
    MessageHeader header{};
    header.type = MessageType::kService;
    header.destination = peer;
    header.op = pairs_[peer].sent++;
    header.segment = begin == all.size();
    delegate_.sender.send(header, part, delegate_.progress.completions.issue({}, memory));
  } while (begin < all.size());
}

// Parts are appended to `open` in order; the last one of a message completes it.
Error ServiceChannel::on_message(const MessageHeader& header, ConstBytes payload) {
  if (!service_)
    return {ErrorKind::kProtocol, "ringdist: a service message to a group without a service"};
  PeerStream& pair = pairs_[header.source];
  if (header.op - pair.received >= kMostParts || payload.size() > kPartBytes ||
      pair.open.size() + payload.size() > kMostParts * kPartBytes)
    return Error(ErrorKind::kProtocol,
                 "ringdist: rank " + std::to_string(header.source) + " sent part " +
                     std::to_string(header.op) + " of its service messages, of " +
                     std::to_string(payload.size()) + " bytes, after part " +
                     std::to_string(pair.received) + " and " + std::to_string(pair.open.size()) +
                     " bytes of a message: that is too much, or came before")
        .blame(header.source);
  pair.out_of_order.emplace(header.op, Part{header.segment != 0, {payload.begin(), payload.end()}});
  while (!has_ended_ && !pair.out_of_order.empty() &&
         pair.out_of_order.begin()->first == pair.received) {
    Part part = std::move(pair.out_of_order.extract(pair.out_of_order.begin()).mapped());
    ++pair.received;
    pair.open.insert(pair.open.end(), part.bytes.begin(), part.bytes.end());
    if (!part.is_last) continue;
    const auto message = std::exchange(pair.open, {});
    if (Error error = service_->on_service_message(header.source, message)) return error;
  }
  return {};
}

}  // namespace ringdist
