// Unexpected-message queue: keeps messages, in order, until the op, receive or group that they
// belong to exists.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/payload.h"
#include "base/scratch_pool.h"
#include "engine/op/message.h"
#include "transport/transport.h"

namespace ringdist {

// A kept message with a copy of its payload.
struct UnexpectedMessage {
  MessageHeader header;
  PooledBuffer data;
  bool revoked = false;  // its sender has revoked the payload; the header is still valid
  ContextId from = 0;    // the Context that has sent it; 0 if unknown
  size_t bytes = 0;      // size of the payload when it came

  Payload payload() const { return revoked ? Payload::revoked() : Payload(data.bytes()); }
};

// Messages that may wait for ops of a group, and for its receives. Eager credit limits those with
// data to fewer, also in a group of 8000 ranks.
inline constexpr size_t kMostUnexpected = size_t{1} << 24;

// Returns an error if no rank may send this message before its op or receive exists here. That is
// data without eager credit, which needs a grant, and only an op or receive grants. `waiting` is
// the number of messages that wait already.
inline Error check_unexpected(const MessageHeader& header, size_t waiting) {
  const bool grantless = header.type == MessageType::kData && header.eager == 0;
  if (!grantless && waiting < kMostUnexpected) return {};
  const std::string what = grantless
                               ? "data without a grant, for an operation that has not begun here"
                               : "too many messages for operations that have not begun here";
  return Error(ErrorKind::kProtocol, "rank " + std::to_string(header.source) + " sent " + what)
      .blame(header.source);
}

// Queue of messages by `Place`, which identifies what they belong to. The caller bounds the number
// of messages.
template <typename Place>
class UnexpectedQueue {
 public:
  explicit UnexpectedQueue(std::shared_ptr<ScratchPool> pool) : pool_(std::move(pool)) {}

  // Copies the message into the queue. Returns true if it is the first in its place.
  bool push(const Place& place, const MessageHeader& header, const Payload& payload,
            ContextId from = 0) {
    PooledBuffer copy = pooled_copy(pool_, payload.bytes());
    // The check comes after the copy, because the sender may revoke the payload during it.
    const bool revoked = !payload.still_valid();
    auto& messages = places_[place];
    messages.push_back(
        {header, revoked ? PooledBuffer() : std::move(copy), revoked, from, payload.size()});
    ++count_;
    bytes_ += payload.size();
    return messages.size() == 1;
  }
  // Removes and returns the messages of a place in the order of their arrival.
  std::vector<UnexpectedMessage> take(const Place& place) {
    auto node = places_.extract(place);
    if (node.empty()) return {};
    count_ -= node.mapped().size();
    for (const UnexpectedMessage& message : node.mapped()) bytes_ -= message.bytes;
    return std::move(node.mapped());
  }
  void clear() {
    places_.clear();
    count_ = 0;
    bytes_ = 0;
  }
  size_t count() const { return count_; }  // number of messages in all places
  size_t bytes() const { return bytes_; }  // size of their payloads when they came

  // Calls each(place, number of messages) for every place.
  template <typename Each>
  void for_each(const Each& each) const {
    for (const auto& [place, messages] : places_) each(place, messages.size());
  }

 private:
  std::shared_ptr<ScratchPool> pool_;
  std::map<Place, std::vector<UnexpectedMessage>> places_;
  size_t count_ = 0;
  size_t bytes_ = 0;
};

}  // namespace ringdist
