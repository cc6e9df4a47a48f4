#include "transport/self_transport.h"

#include "base/check.h"

namespace ringdist {

void SelfTransport::enqueue(const OutgoingMessage& to, ConstBytes payload,
                            const std::byte* staged) {
  check(to.peer == self_, "the self transport was given another Context");
  queue_.push_back({{to.header.begin(), to.header.end()}, payload, to.send_id, staged});
}

void SelfTransport::end(const QueuedMessage& parcel, const Error& error) {
  if (parcel.staged != nullptr) staging_.release(parcel.staged);
  receiver_.end_send(parcel.send_id, error);
}

void SelfTransport::send(ContextId peer, ConstBytes header, ConstBytes payload, SendId send_id) {
  enqueue({peer, header, send_id}, payload, nullptr);
}

// The caller of reserve() is a holder, so the buffer stays until the last line even if `to` is
// empty.
void SelfTransport::commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) {
  for (const OutgoingMessage& out : to) {
    staging_.hold(reserved.data());
    enqueue(out, reserved.first(used), reserved.data());
  }
  staging_.release(reserved.data());
}

bool SelfTransport::progress() {
  bool any = false;
  // Handles only the messages that are queued at this moment, because handlers may queue answers
  // without end.
  for (size_t n = queue_.size(); n > 0 && !queue_.empty(); --n) {
    QueuedMessage parcel = std::move(queue_.front());
    queue_.pop_front();
    receiver_.on_message(self_, parcel.header, parcel.payload);
    end(parcel, {});
    any = true;
  }
  return any;
}

void SelfTransport::close() {
  for (auto& parcel : std::exchange(queue_, {}))
    end(parcel, Error(ErrorKind::kAborted, "the transport closed"));
}

}  // namespace ringdist
