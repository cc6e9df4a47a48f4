#include "control/control_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace ringdist {
namespace {

constexpr size_t kMaxOutput = size_t{4} << 20;    // limit of buffered output, bytes
constexpr size_t kReadAtOnce = size_t{64} << 10;  // bytes per read

}  // namespace

// The part that the kernel has is removed here and not in flush(), so a slow peer costs one move
// per frame.
bool FramedSocket::send(ConstBytes frame) {
  if (out_.size() - sent_ + frame.size() > kMaxOutput) return false;
  if (sent_ > 0) {
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  out_.insert(out_.end(), frame.begin(), frame.end());
  return flush();
}

bool FramedSocket::flush() {
  while (sent_ < out_.size()) {
    const ssize_t n = stream_.write(ConstBytes(out_).subspan(sent_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    sent_ += static_cast<size_t>(n);
  }
  out_.clear();
  sent_ = 0;
  return stream_.flush();
}

void FramedSocket::end_output() { stream_.end_output(); }

// Reads at most one frame's limit at a time. So a connection that is not admitted, with its low
// limit, takes little memory.
FramedSocket::Input FramedSocket::receive() {
  std::array<std::byte, kReadAtOnce> buffer;
  const size_t size = std::min(buffer.size(), reader_.limit());
  for (;;) {
    const ssize_t n = stream_.read(Bytes(buffer).first(size));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Input::kEmpty : Input::kEnd;
    if (n == 0) return Input::kEnd;
    reader_.append(ConstBytes(buffer).first(static_cast<size_t>(n)));
    return Input::kData;
  }
}

}  // namespace ringdist
