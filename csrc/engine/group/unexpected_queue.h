// Messages that came before what they belong to, by what that is: kept in their order.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/payload.h"
#include "base/scratch_pool.h"
#include "engine/op/message.h"

namespace ringdist {

struct UnexpectedMessage {
  MessageHeader header;
  PooledBuffer data;
  bool revoked = false;  // by its sender: the header says all the same what that had called

  Payload payload() const { return revoked ? Payload::revoked() : Payload(data.bytes()); }
};

template <typename Place>
class UnexpectedQueue {
 public:
  explicit UnexpectedQueue(std::shared_ptr<ScratchPool> pool) : pool_(std::move(pool)) {}

  // True if it is the first in its place.
  bool push(const Place& place, const MessageHeader& header, const Payload& payload) {
    PooledBuffer copy = pooled_copy(pool_, payload.bytes());
    const bool revoked = !payload.still_valid();
    auto& parked = places_[place];
    parked.push_back({header, revoked ? PooledBuffer() : std::move(copy), revoked});
    ++count_;
    return parked.size() == 1;
  }
  std::vector<UnexpectedMessage> take(const Place& place) {
    auto node = places_.extract(place);
    if (node.empty()) return {};
    count_ -= node.mapped().size();
    return std::move(node.mapped());
  }
  void clear() {
    places_.clear();
    count_ = 0;
  }
  size_t count() const { return count_; }  // of messages

  // Calls it for every place, with the number of its messages.
  template <typename Each>
  void for_each(const Each& each) const {
    for (const auto& [place, parked] : places_) each(place, parked.size());
  }

 private:
  std::shared_ptr<ScratchPool> pool_;
  std::map<Place, std::vector<UnexpectedMessage>> places_;
  size_t count_ = 0;
};

}  // namespace ringdist
