#include "cuda/stream/mailbox_link.h"

#include <algorithm>

namespace ringdist::gpu {

HostMailboxes::Pieces MailboxLink::Row::cut(size_t most) {
  HostMailboxes::Pieces out;
  while (most > 0 && !pieces_.empty()) {
    std::span<std::byte>& first = pieces_.front();
    const size_t bytes = std::min(most, first.size());
    out.push_back(first.first(bytes));
    most -= bytes;
    first = first.subspan(bytes);
    if (first.empty()) pieces_.erase(pieces_.begin());
  }
  return out;
}

Error MailboxLink::begin() { return mailboxes_.use(stream_); }

Error MailboxLink::send(int peer, const DeviceBytes& message, Stream) {
  sends_[peer].add({message.data, message.size});
  return {};
}

Error MailboxLink::receive(int peer, const DeviceBytes& message, Stream) {
  receives_[peer].add({message.data, message.size});
  return {};
}

// One turn of all peers after another, what is left before what is taken, as both streams may be
// one queue of the device: a rank that waits until its box is free waits for what others do some
// turns before.
Error MailboxLink::move(Stream takes) {
  while (!sends_.empty() || !receives_.empty()) {
    for (auto& [peer, row] : sends_)
      if (Error error = mailboxes_.post(peer, row.cut(mailboxes_.most()), stream_)) return error;
    for (auto& [peer, row] : receives_)
      if (Error error = mailboxes_.receive(peer, row.cut(mailboxes_.most()), takes)) return error;
    for (Rows* rows : {&sends_, &receives_})
      std::erase_if(*rows, [](const auto& one) { return one.second.empty(); });
  }
  return {};
}

Error MailboxLink::end() {
  const auto takes = mailboxes_.fork(stream_);
  if (!takes.ok()) return takes.error();
  const Error error = move(takes.value());
  const Error joined = mailboxes_.join(stream_);  // also of a part: its memory is in use until then
  if (error || joined) return error ? error : joined;
  return mailboxes_.end_use(stream_);
}

}  // namespace ringdist::gpu
