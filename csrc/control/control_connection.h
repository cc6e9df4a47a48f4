// A control connection: a non-blocking socket that carries frames, and the state of its greeting.
// Also the two interfaces through which other parts of the control plane use the connections. Owned
// by ConnectionManager; control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "control/control_frames.h"
#include "os/fd.h"
#include "os/stream.h"

namespace ringdist {

// Sends and receives frames over a stream. Output that the stream does not take at once is kept in
// a buffer of at most 4 MiB. Not thread-safe; the membership transport uses it on its own thread.
class FramedSocket {
 public:
  explicit FramedSocket(Stream stream) : stream_(std::move(stream)) {}
  explicit FramedSocket(Fd fd) : FramedSocket(Stream(std::move(fd))) {}

  // Appends `frame` to the output and sends what the socket takes. Returns false if the peer is
  // gone, or so far behind that the buffer is full.
  bool send(ConstBytes frame);
  // Sends buffered output. Returns false if the peer is gone.
  bool flush();
  bool has_output() const { return sent_ < out_.size() || stream_.has_output(); }
  // Shuts the sending direction down.
  void end_output();

  // Reads once from the stream. kEmpty means that nothing is there at present.
  enum class Input { kData, kEmpty, kEnd };
  Input receive();
  // Returns true if there may be input without an event.
  bool has_input() const { return stream_.has_input(); }
  // These two are the functions of FrameReader.
  Result<std::optional<Frame>> next() { return reader_.next(); }
  void limit_frames(size_t body_bytes) { reader_.set_limit(body_bytes); }

  const Fd& fd() const { return stream_.fd(); }
  // Continues a dial; see Stream::establish().
  int establish() { return stream_.establish(); }
  uint32_t events() const { return stream_.events(); }
  // Returns the process that TLS has proven; 0 on a plain stream.
  uint64_t peer() const { return stream_.peer(); }
  // These are the functions of Stream.
  std::string peer_name() const { return stream_.peer_name(); }
  bool is_encrypted() const { return stream_.is_encrypted(); }
  bool begins_plain() const { return stream_.begins_plain(); }
  std::string failure() const { return stream_.failure(); }
  std::string describe(int errno_value) const { return stream_.describe(errno_value); }
  void close() { stream_.close(); }
  // Returns the stream, and has none afterwards.
  Stream release() { return std::move(stream_); }

 private:
  Stream stream_;
  FrameReader reader_;
  std::vector<std::byte> out_;  // output, of which `sent_` bytes are in the kernel
  size_t sent_ = 0;
};

// Kind of a link between two processes: AF_UNIX inside a host, TCP between hosts.
enum class LinkKind : uint8_t { kLocal = 0, kTcp = 1 };
inline constexpr LinkKind kLinkKinds[] = {LinkKind::kLocal, LinkKind::kTcp};

// One connection to another process, from the dial or the accept to its end.
struct ControlConnection {
  enum class State : uint8_t {
    kConnecting,  // dialed; not connected so far, or in the handshake of TLS
    kGreeting,    // waits for a hello, or for its answer
    kHeld,        // the accepting side does not have the connection's group so far
    kOpen,
    kClosing,  // sends the rest of its output, then closes
    kClosed,   // removed at the end of the loop's iteration
  };

  ControlConnection(Stream socket, LinkKind link_kind, bool by_me, uint64_t epoll_key,
                    TimePoint now)
      : stream(std::move(socket)), kind(link_kind), dialed(by_me), key(epoll_key), since(now) {}

  bool open() const { return state == State::kOpen; }
  // Returns true once the greeting is over, though the accepting side may still hold the
  // connection.
  bool reached() const { return state == State::kOpen || state == State::kHeld; }
  bool closed() const { return state == State::kClosed; }
  // Returns true if it was accepted and has not been admitted.
  bool is_stranger() const { return !dialed && !open() && !closed(); }

  FramedSocket stream;
  LinkKind kind;
  bool dialed;            // by this side
  uint64_t key;           // key of its epoll events; keys grow, so they order connections by age
  TimePoint since;        // start of the current state
  TimePoint last_sent{};  // last frame; heartbeats fill the gaps
  State state = State::kGreeting;
  uint64_t peer = 0;  // context id; 0 until the hello
  ControlHello hello;
  int pid = 0;                // local links: reported by the kernel, 0 where not visible
  unsigned uid = 0;           // local links: reported by the kernel
  bool needed = true;         // by this process
  bool was_needed = false;    // by one of its groups, at any time
  bool peer_needs = true;     // by the peer, as its last kNeed frame states
  bool wants_output = false;  // epoll also reports when it can send
  bool broken = false;        // cannot send; may still have input
  bool exit_seen = false;     // the peer has confirmed that this process is about to end
};

// Read access to the connections of ConnectionManager, and dialing, for parts that detect failures,
// dial, or answer requests.
class ConnectionView {
 public:
  virtual ~ConnectionView() = default;
  // Returns true if there is a connection to `peer`, or one on its way.
  virtual bool is_connecting_or_open(uint64_t peer, LinkKind kind) const = 0;
  // Returns true if the other side has accepted the connection. It may still hold it, until it has
  // the group, too.
  virtual bool reached(uint64_t peer, LinkKind kind) const = 0;
  // Returns true if both sides may send.
  virtual bool open(uint64_t peer, LinkKind kind) const = 0;
  // Dials `peer` at `address`. `nonce` is that of a common group, or 0 for a host proof: the other
  // side holds such a connection as long as it exists. Over TCP the connection comes from ip
  // `source`; if that is empty, the kernel chooses. A failure is reported by
  // ConnectionManager::Delegate::on_closed().
  virtual void dial(LinkKind kind, uint64_t peer, const std::string& address, uint64_t nonce,
                    const std::string& source) = 0;
};

// Sending and closing on the connections of ConnectionManager, for gossip, connection demand and
// graceful shutdown.
class ConnectionSender {
 public:
  virtual ~ConnectionSender() = default;
  // Calls `fn` for all connections that are not closed.
  virtual void for_each(const std::function<void(ControlConnection&)>& fn) = 0;

  // Sends a frame, or buffers it. A failure marks the connection as broken.
  virtual void send(ControlConnection& connection, ConstBytes frame) = 0;
  // Sends a frame on all connections that are open.
  virtual void send_to_all(ConstBytes frame, const ControlConnection* except = nullptr) = 0;
  // Shows the other side that nothing follows. Does nothing while output is buffered.
  virtual void end_output(ControlConnection& connection) = 0;
  // Closes at once, or after buffered output has been sent. The delegate gets no on_closed().
  virtual void close(ControlConnection& connection) = 0;
  virtual void close_after_output(ControlConnection& connection) = 0;
  // Accepts no further connections.
  virtual void stop_listening() = 0;
};

}  // namespace ringdist
