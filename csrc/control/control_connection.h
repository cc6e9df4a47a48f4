// One control connection: a non-blocking socket that carries frames, and how far its greeting is.
// Owned by ConnectionManager; control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "control/control_frames.h"
#include "os/fd.h"

namespace ringdist {

// Frames over a socket, with a bounded buffer for what the socket does not take at once.
class FramedSocket {
 public:
  explicit FramedSocket(Fd fd) : fd_(std::move(fd)) {}

  // False once the peer is gone, or so far behind that the buffer is full.
  bool send(ConstBytes frame);
  bool flush();
  bool has_output() const { return sent_ < out_.size(); }
  void end_output();

  // Reads once. kEmpty: nothing there now. What throws has read nothing.
  enum class Input { kData, kEmpty, kEnd };
  Input receive();
  Result<std::optional<Frame>> next() { return reader_.next(); }
  void put_back(const Frame& frame) { reader_.put_back(frame); }
  void limit_frames(size_t body_bytes) { reader_.set_limit(body_bytes); }

  const Fd& fd() const { return fd_; }
  void close() { fd_.reset(); }

 private:
  Fd fd_;
  FrameReader reader_;
  std::vector<std::byte> out_;
  size_t sent_ = 0;
};

enum class LinkKind : uint8_t { kLocal = 0, kTcp = 1 };
inline constexpr LinkKind kLinkKinds[] = {LinkKind::kLocal, LinkKind::kTcp};

struct ControlConnection {
  enum class State : uint8_t {
    kConnecting,  // dialed, not yet connected
    kGreeting,    // waits for a hello, or for its answer
    kHeld,        // its group is unknown to the accepting side so far
    kOpen,
    kClosing,  // sends what is left, then closes
    kClosed,   // removed at the end of the loop's turn
  };

  ControlConnection(Fd fd, LinkKind link_kind, bool by_me, uint64_t epoll_key, TimePoint now)
      : stream(std::move(fd)), kind(link_kind), dialed(by_me), key(epoll_key), since(now) {}

  bool open() const { return state == State::kOpen; }
  bool reached() const { return state == State::kOpen || state == State::kHeld; }
  bool closed() const { return state == State::kClosed; }

  FramedSocket stream;
  LinkKind kind;
  bool dialed;
  uint64_t key;
  TimePoint since;  // of the current state
  TimePoint last_sent{};
  State state = State::kGreeting;
  uint64_t peer = 0;  // 0 until the hello
  ControlHello hello;
  int pid = 0;  // local links: as the kernel says, 0 where not visible
  unsigned uid = 0;
  bool needed = true;         // by this process
  bool was_needed = false;    // by one of its groups, at any time
  bool peer_needs = true;     // as the peer said last
  bool wants_output = false;  // what epoll was told
  bool broken = false;        // cannot send; may still have input
  bool cut_short = false;     // nothing more is read: what was done about its greeting is unknown
  bool stalled = false;       // a frame could not be taken in: it comes first in the next tick
  bool exit_seen = false;     // the peer knows that this process is about to end
};

// Whom this process is connected to: what those who judge, dial and answer need of
// ConnectionManager.
class ConnectionView {
 public:
  virtual ~ConnectionView() = default;
  // A connection is there, or on its way.
  virtual bool is_connecting_or_open(uint64_t peer, LinkKind kind) const = 0;
  // The other side has it, and may hold it until it knows the group.
  virtual bool reached(uint64_t peer, LinkKind kind) const = 0;
  // Both sides talk.
  virtual bool open(uint64_t peer, LinkKind kind) const = 0;
  virtual void dial(LinkKind kind, uint64_t peer, const std::string& address, uint64_t nonce) = 0;
};

// Speaking on connections: what those who pass news on, settle needs and say goodbye take of
// ConnectionManager.
class ConnectionSender {
 public:
  virtual ~ConnectionSender() = default;
  // All that are not closed.
  virtual void for_each(const std::function<void(ControlConnection&)>& fn) = 0;

  virtual void send(ControlConnection& connection, ConstBytes frame) = 0;
  // On all that are open.
  virtual void send_to_all(ConstBytes frame, const ControlConnection* except = nullptr) = 0;
  // The other side sees that nothing follows; not yet where something has still to be sent.
  virtual void end_output(ControlConnection& connection) = 0;
  virtual void close(ControlConnection& connection) = 0;
  virtual void close_after_output(ControlConnection& connection) = 0;
  virtual void stop_listening() = 0;
};

}  // namespace ringdist
