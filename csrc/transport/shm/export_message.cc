#include "transport/shm/export_message.h"

#include <array>
#include <span>

#include "os/fd_passing.h"

namespace ringdist::shm {

bool send_export_message(const Fd& socket, const ExportMessage& note, const Fd* file) {
  const ConstBytes bytes = std::as_bytes(std::span(&note, 1));
  if (!file) return !send_with_fds(socket, bytes, {});
  const std::array<int, 1> fds{file->get()};
  return !send_with_fds(socket, bytes, fds);
}

Result<std::optional<ReceivedExportMessage>> receive_export_message(const Fd& socket) {
  ExportMessage note{};
  bool empty = false;
  auto received = receive_with_fds(socket, std::as_writable_bytes(std::span(&note, 1)), empty);
  const bool no_descriptor = !received.ok() && received.error().kind() == ErrorKind::kSystem;
  if (!received.ok() && !no_descriptor) return received.error();
  if (empty) return std::optional<ReceivedExportMessage>();
  if (!no_descriptor && received.value().bytes == 0)
    return Error(ErrorKind::kPeerLost, "the peer closed its connection");
  if (note.magic != ExportMessage::kMagic ||
      (!no_descriptor && received.value().bytes != sizeof note))
    return Error(ErrorKind::kProtocol, "unknown bytes on a connection of shared memory");
  ReceivedExportMessage out{note, {}};
  if (!no_descriptor && !received.value().fds.empty())
    out.file = std::move(received.value().fds.front());
  return std::optional<ReceivedExportMessage>(std::move(out));
}

}  // namespace ringdist::shm
