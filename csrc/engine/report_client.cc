#include "engine/report_client.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "control/control_connection.h"
#include "os/socket.h"
#include "os/tls_key.h"

namespace ringdist {
namespace {

constexpr size_t kIdDigits = 16;  // a context id ends the name

uint64_t context_of(const std::string& unix_name) {
  uint64_t out = 0;
  const size_t from = unix_name.size() - std::min(unix_name.size(), kIdDigits);
  const char* const end = unix_name.data() + unix_name.size();
  const auto read = std::from_chars(unix_name.data() + from, end, out, 16);
  return read.ptr == end ? out : 0;
}

// Adds the texts that have come to `out`. Returns true once the answer is complete.
Result<bool> read_texts(FramedSocket& socket, std::vector<std::string>& out) {
  for (;;) {
    const auto frame = socket.next();
    if (!frame.ok()) return frame.error();
    if (frame.value()) {
      const FrameType type = frame.value()->type;
      const bool last = type == FrameType::kDump || type == FrameType::kSnapshotEnd;
      if (last || type == FrameType::kSnapshot) out.push_back(decode_text(frame.value()->body));
      if (last) return true;
      continue;
    }
    const FramedSocket::Input input = socket.receive();
    if (input == FramedSocket::Input::kEmpty) return false;
    if (input == FramedSocket::Input::kEnd)
      return Error(ErrorKind::kPeerLost, socket.failure().empty() ? "it closed the connection"
                                                                  : "TLS: " + socket.failure());
  }
}

}  // namespace

Result<std::vector<std::string>> read_report(const std::string& unix_name, const TlsFiles& files,
                                             FrameType request, ConstBytes body,
                                             TimePoint deadline) {
  const auto key = read_tls_key(files);
  if (!key.ok()) return key.error();
  if (!key.value()) return Error(ErrorKind::kInvalidArgument, "this process has no key");
  const uint64_t peer = context_of(unix_name);
  if (peer == 0)
    return Error(ErrorKind::kInvalidArgument, "'" + unix_name + "' is the socket of no context");
  ConnectAttempt attempt = connect_unix(unix_name);
  if (attempt.failure) return attempt.failure->error;
  FramedSocket socket(
      Stream(std::move(attempt.fd), key.value()->dial(key.value()->draw_id(), peer)));
  std::vector<std::string> out;
  bool asked = false;
  for (;;) {
    const int problem = socket.establish();
    if (problem != 0 && problem != EAGAIN)
      return Error(ErrorKind::kPeerLost, socket.describe(problem));
    if (problem == 0) {
      if (!std::exchange(asked, true)) (void)socket.send(make_frame(request, body));
      const auto complete = read_texts(socket, out);
      if (!complete.ok()) return complete.error();
      if (complete.value()) return out;
    }
    const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return Error(ErrorKind::kTimeout, "it did not answer in time");
    const bool writes = (socket.events() & POLLOUT) != 0;
    pollfd entry{socket.fd().get(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0};
    (void)poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 1000)));
  }
}

}  // namespace ringdist
