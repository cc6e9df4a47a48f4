// The connection over which a process says what it lends to one peer (export_message.h): the
// lender's end. Dialed when there is something to lend, for a link that is open already; nobody
// waits for it, and without it payloads are copied. With the lane's token held.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "transport/shm/export_message.h"
#include "transport/shm/shm_hello.h"

namespace ringdist::shm {

class ExportConnection {
 public:
  // To the peer that listens at `address`.
  ExportConnection(std::string address, ContextId me, ContextId peer)
      : address_(std::move(address)), me_(me), peer_(peer) {}

  // True if something can be said; dials if there is no connection. `ring` is that of the link.
  // What has failed is tried again after a while only.
  bool open(uint32_t ring);
  bool is_open() const { return state_ == State::kOpen; }
  bool send(const ExportMessage& note, const Fd* file = nullptr);
  // What the peer has said, if anything. Errors as of receive_export_message(): it is to be lost.
  Result<std::optional<ReceivedExportMessage>> receive();
  // It is of no more use; the socket stays until close().
  void abandon();
  const Fd& socket() const { return socket_; }
  void close();

 private:
  enum class State { kClosed, kOpen, kLost };

  bool dial(uint32_t ring);

  const std::string address_;
  const ContextId me_;
  const ContextId peer_;
  State state_ = State::kClosed;
  Fd socket_;
  TimePoint dial_again_;
  bool warned_ = false;  // in the log
};

}  // namespace ringdist::shm
