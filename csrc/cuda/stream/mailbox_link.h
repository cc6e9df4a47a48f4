// Moves bytes by way of boxes in the host's memory (host_mailboxes.h): copies of the devices, and
// nothing else, in turns of as much as a box holds. Of one op.
#pragma once

#include <map>

#include "cuda/stream/device_link.h"
#include "cuda/stream/host_mailboxes.h"

namespace ringdist::gpu {

class MailboxLink final : public DeviceLink {
 public:
  MailboxLink(HostMailboxes& mailboxes, Stream stream) : mailboxes_(mailboxes), stream_(stream) {}

  Error begin() override;
  Error send(int peer, const DeviceBytes& message, Stream stream) override;
  Error receive(int peer, const DeviceBytes& message, Stream stream) override;
  Error end() override;

 private:
  // Of one peer, as one row of bytes: the two ranks of a pair cut it alike.
  class Row {
   public:
    void add(std::span<std::byte> piece) { pieces_.push_back(piece); }
    bool empty() const { return pieces_.empty(); }
    // The next ones, of at most so many bytes.
    HostMailboxes::Pieces cut(size_t most);

   private:
    HostMailboxes::Pieces pieces_;
  };
  using Rows = std::map<int, Row>;

  Error move(Stream takes);

  HostMailboxes& mailboxes_;
  const Stream stream_;
  Rows sends_, receives_;
};

}  // namespace ringdist::gpu
