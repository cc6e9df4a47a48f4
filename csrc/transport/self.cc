#include "transport/self.h"

#include "base/check.h"

namespace ringdist {

void SelfTransport::send(ContextId peer, ConstBytes header, ConstBytes payload, SendDone done) {
  check(peer == self_, "the self transport was given another Context");
  queue_.push_back({{header.begin(), header.end()}, payload, std::move(done)});
}

void SelfTransport::commit(Bytes reserved, size_t used, std::span<const Outgoing> to,
                           SendDone done) {
  staging_.send(*this, reserved, used, to, std::move(done));
}

bool SelfTransport::progress() {
  bool any = false;
  // Only what is there now: a handler that answers must not keep us here.
  for (size_t n = queue_.size(); n > 0 && !queue_.empty(); --n) {
    Parcel parcel = std::move(queue_.front());
    queue_.pop_front();
    receiver_.on_message(parcel.header, parcel.payload);
    parcel.done({});
    any = true;
  }
  return any;
}

void SelfTransport::close() {
  for (auto& parcel : std::exchange(queue_, {}))
    parcel.done(Error(ErrorKind::kAborted, "the transport closed"));
}

}  // namespace ringdist
