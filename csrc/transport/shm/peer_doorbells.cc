#include "transport/shm/peer_doorbells.h"

namespace ringdist::shm {

Result<std::shared_ptr<PeerDoorbell>> PeerDoorbells::add(ContextId peer, Fd write_end) {
  if (const auto found = keys_.find(peer); found != keys_.end())
    return known_.at(found->second).doorbell;
  const uint64_t key = next_key_++;
  // No events are requested. The error event that reports the peer's end comes in any case.
  if (Error error = epoll_.add(write_end.get(), 0, key)) return error;
  auto doorbell = std::make_shared<PeerDoorbell>(std::move(write_end));
  known_[key] = {peer, doorbell};
  keys_[peer] = key;
  return doorbell;
}

std::optional<ContextId> PeerDoorbells::on_event(uint64_t key) {
  const auto found = known_.find(key);
  if (found == known_.end()) return std::nullopt;
  const ContextId peer = found->second.peer;
  forget(found);
  return peer;
}

void PeerDoorbells::forget(std::map<uint64_t, Known>::iterator known) {
  auto& [peer, doorbell] = known->second;
  epoll_.remove(doorbell->ringer_->get());
  doorbell->ringer_.reset();
  keys_.erase(peer);
  known_.erase(known);
}

void PeerDoorbells::close() {
  while (!known_.empty()) forget(known_.begin());
}

}  // namespace ringdist::shm
