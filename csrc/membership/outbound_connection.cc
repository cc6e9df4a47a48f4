#include "membership/outbound_connection.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "os/socket.h"

namespace ringdist {
namespace {

constexpr size_t kMostWaiting = 16;        // they are said again
constexpr size_t kRoomForCertain = 65536;  // of what a socket holds: others stay below that
constexpr Duration kDialTime = std::chrono::seconds(2);
// Who ends may accept for a while yet; who accepts and ends all the same is not asked all the time.
constexpr Duration kFirstRedial = Milliseconds(2);
constexpr Duration kLongestPause = Milliseconds(200);
constexpr Duration kShort = Milliseconds(100);
constexpr int kBreakAfter = 3000;  // ms

}  // namespace

OutboundConnection::OutboundConnection(ProcessId self, PeerAddress to, const Epoll& epoll,
                                       uint64_t key)
    : self_(self), to_(std::move(to)), epoll_(epoll), key_(key) {}

bool OutboundConnection::send(uint64_t group_id, ConstBytes letter, bool certain, TimePoint now) {
  look(group_id, now);
  if (state_ == State::kOpen) return write(letter, certain, now);
  if (state_ == State::kConnecting && waiting_.size() < kMostWaiting)
    waiting_.emplace_back(letter.begin(), letter.end());
  return false;
}

void OutboundConnection::look(uint64_t group_id, TimePoint now) {
  used_at_ = now;
  group_id_ = group_id;
  if (state_ == State::kClosed && now - dialed_at_ >= pause_) dial(now);
}

void OutboundConnection::dial(TimePoint now) {
  check(state_ == State::kClosed, "dialed twice");
  dialed_at_ = now;
  lost_ = false;
  const bool local = to_.kind == LinkKind::kLocal;
  ConnectAttempt attempt = local ? connect_unix(to_.address) : connect_tcp(to_.address);
  if (attempt.failure) return fail(attempt.failure->errno_value, now);
  if (local) {
    const auto who = peer_credentials(attempt.fd);
    if (!who.ok() || who.value().uid != geteuid()) return;
  }
  stream_.emplace(std::move(attempt.fd));
  state_ = State::kConnecting;
  if (epoll_.add(stream_->fd().get(), attempt.pending ? EPOLLOUT : EPOLLIN, key_)) return close();
  if (!attempt.pending) opened(now);
}

void OutboundConnection::opened(TimePoint now) {
  if (const int problem = connect_result(stream_->fd()); problem != 0) return fail(problem, now);
  if (to_.kind == LinkKind::kTcp) break_after(stream_->fd(), kBreakAfter);
  (void)epoll_.modify(stream_->fd().get(), EPOLLIN, key_);
  state_ = State::kOpen;
  if (!stream_->send(ControlHello{self_, to_.process, group_id_}.frame(FrameType::kLetters)))
    return fail(0, now);
  for (auto& letter : std::exchange(waiting_, {})) (void)write(letter, /*certain=*/false, now);
}

// Behind an earlier one that the socket did not take it is not sent: it will be said again.
bool OutboundConnection::write(ConstBytes letter, bool certain, TimePoint now) {
  if (!stream_->flush()) {
    fail(0, now);
    return false;
  }
  if (stream_->has_output() || (!certain && unread(stream_->fd()) > kRoomForCertain)) return false;
  if (!stream_->send(make_frame(FrameType::kLetter, letter))) {
    fail(0, now);
    return false;
  }
  return !stream_->has_output();
}

void OutboundConnection::on_event(TimePoint now) {
  if (!stream_) return;
  if (state_ == State::kConnecting) return opened(now);
  // The other side says nothing here: this is its end.
  FramedSocket::Input input = stream_->receive();
  while (input == FramedSocket::Input::kData) input = stream_->receive();
  if (input == FramedSocket::Input::kEmpty) return;
  fail(0, now);
  tick(now);
}

void OutboundConnection::tick(TimePoint now) {
  if (const auto at = next(); at && now >= *at) return dial(now);
  if (state_ == State::kConnecting && now - dialed_at_ > kDialTime) return close();
  if (state_ == State::kOpen && stream_->has_output() && !stream_->flush()) fail(0, now);
}

std::optional<TimePoint> OutboundConnection::next() const {
  if (state_ != State::kClosed || !lost_) return std::nullopt;
  return dialed_at_ + pause_;
}

void OutboundConnection::fail(int errno_value, TimePoint now) {
  close();
  const bool was_short = now - dialed_at_ < kShort;
  pause_ = was_short ? std::clamp(pause_ * 2, kFirstRedial, kLongestPause) : kFirstRedial;
  if (to_.kind != LinkKind::kLocal) return;
  // The name is of one process, which listens as long as it may speak.
  if (errno_value == ECONNREFUSED)
    state_ = State::kDeserted;
  else
    lost_ = true;
}

void OutboundConnection::close() {
  if (stream_) epoll_.remove(stream_->fd().get());
  stream_.reset();
  waiting_.clear();
  if (state_ != State::kDeserted) state_ = State::kClosed;
}

}  // namespace ringdist
