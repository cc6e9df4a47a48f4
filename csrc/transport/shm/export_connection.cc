#include "transport/shm/export_connection.h"

#include <utility>

#include "base/log.h"

namespace ringdist::shm {
namespace {

constexpr auto kDialAgainAfter = std::chrono::seconds(1);

}  // namespace

bool ExportConnection::open(uint32_t ring) {
  if (state_ != State::kClosed) return is_open();
  return Clock::now() >= dial_again_ && dial(ring);
}

bool ExportConnection::dial(uint32_t ring) {
  ConnectAttempt attempt = connect_to_own_user(address_);
  Error error;
  if (attempt.failure)
    error = attempt.failure->error;
  else
    error = send_export_hello(attempt.fd, me_, peer_, ring);
  if (error) {
    dial_again_ = Clock::now() + kDialAgainAfter;
    if (!std::exchange(warned_, true))
      log(LogLevel::kWarn,
          "tensors in shared memory are copied for a process of this host: " + error.message());
    return false;
  }
  socket_ = std::move(attempt.fd);
  state_ = State::kOpen;
  return true;
}

bool ExportConnection::send(const ExportMessage& note, const Fd* file) {
  return is_open() && send_export_message(socket_, note, file);
}

Result<std::optional<ReceivedExportMessage>> ExportConnection::receive() {
  if (!is_open()) return std::optional<ReceivedExportMessage>();
  return receive_export_message(socket_);
}

void ExportConnection::abandon() {
  state_ = State::kLost;
  dial_again_ = Clock::now() + kDialAgainAfter;
}

// A child that was just forked holds the socket as well. The reader must see the end of this
// connection before the next begins.
void ExportConnection::close() {
  hang_up(socket_);
  socket_.reset();
  state_ = State::kClosed;
}

}  // namespace ringdist::shm
