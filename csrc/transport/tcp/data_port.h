// The listening port of a process, as transport `tcp` sees it, and the wire format of its
// connections. The control plane accepts all connections and reads their first frame. If that is a
// DataHello, the connection carries messages of a transport.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "os/stream.h"
#include "transport/transport.h"

namespace ringdist {

// Random number that a transport publishes with its address. A connection must name it, so that
// only processes that have read the address from the store are let in.
using DataSecret = std::array<std::byte, 16>;

// First frame of a connection for data. The side that dials sends it, and waits for an answer.
struct DataHello {
  static constexpr uint8_t kFrameType = 0x07;  // FrameType::kDataHello of the control plane

  ContextId from = 0;
  ContextId to = 0;
  uint32_t channel =
      0;  // from 1, number of the sender's channel to that peer; a renewed one has a higher
  uint32_t path = 0;    // number of the connection in its channel, below tcp::kMostPaths
  DataSecret secret{};  // the receiver's

  // Returns the whole frame: u32 length of the body, u8 type, body.
  std::vector<std::byte> frame() const;
  // Reads the body of a frame. Returns nothing if it is malformed or of another version.
  static std::optional<DataHello> decode(ConstBytes body);
};

// Passes accepted connections to the transports of this process. Any thread.
class DataPort {
 public:
  // Takes over a connection. Called on the thread of adopt(), under the lock of the port, so it
  // must not call the port.
  using OnConnection = std::function<void(Stream socket, const DataHello& hello)>;

  // Registers a transport under its secret, until remove(). After remove() the handler is not
  // called.
  void add(const DataSecret& secret, OnConnection handler);
  void remove(const DataSecret& secret);
  // Passes a connection to the transport that it names; `hello` is the body of its first frame.
  // Closes the connection if there is no such transport, if the frame is malformed, or if it names
  // another sender than TLS has proven. The last is logged, at most once a second.
  void adopt(Stream socket, ConstBytes hello);

 private:
  std::mutex mutex_;
  std::vector<std::pair<DataSecret, OnConnection>> transports_ RINGDIST_GUARDED_BY(mutex_);
  TimePoint refused_at_ RINGDIST_GUARDED_BY(mutex_){};  // time of the last line of adopt()
};

}  // namespace ringdist

namespace ringdist::tcp {

// A channel has one connection for each pair of network interfaces (Path). After the greeting the
// dialing side sends records: a RecordHead, the message's header, its payload. Each record travels
// on one of the connections, and the receiver puts them in order by their numbers. The receiver
// answers with acknowledgements, each a little-endian u64: how many records of the channel it has
// handled since the channel began. Its first one is the answer to the DataHello.
//
// A record also carries the count of the opposite direction. So where two processes send to each
// other, the count arrives before the answer, which may overwrite the payload of a send.

// Most connections of a channel.
inline constexpr size_t kMostPaths = 8;
// Bytes of records that a sender with several connections has on the way, and that a receiver keeps
// because an earlier record is missing. One record more may be on the way.
inline constexpr size_t kWindow = size_t{16} << 20;
// A record counts as this much more, for what it takes beside its bytes.
inline constexpr size_t kRecordCost = 128;

// Kinds of records. A flush has neither header nor payload; it requests an acknowledgement at once.
enum class RecordKind : uint16_t { kMessage = 0, kFlush = 1 };

// First bytes of a record, in the byte order of the machine, which is little-endian.
struct RecordHead {
  uint64_t number = 0;      // position in the channel, from 0
  uint64_t handled = 0;     // records of the opposite channel that the sender has handled
  uint32_t of_channel = 0;  // number of that channel; 0 if there is none
  uint32_t payload_bytes = 0;
  uint16_t header_bytes = 0;
  RecordKind kind = RecordKind::kMessage;
  uint32_t reserved = 0;

  // Returns true if the record is not too large.
  bool is_valid(size_t max_payload) const {
    return payload_bytes <= max_payload && header_bytes <= kMaxHeaderBytes &&
           (kind == RecordKind::kMessage || kind == RecordKind::kFlush);
  }
  size_t bytes() const { return sizeof(RecordHead) + header_bytes + payload_bytes; }
};
static_assert(sizeof(RecordHead) == 32, "no padding");

// Where and how a process accepts connections for data.
struct DataAddress {
  DataSecret secret{};
  std::vector<std::string> addresses;  // "ip:port" for each network interface, the best first

  std::vector<std::byte> encode() const;
  // Returns nothing for bytes that encode() has not made.
  static std::optional<DataAddress> decode(ConstBytes bytes);
};

// A connection comes from an interface of this process and leads to one of the peer.
struct Path {
  std::string own_ip;   // in the form of without_port()
  std::string address;  // "ip:port" of the peer
};
// Returns pairs in which each interface occurs once, those in the same network first, at most
// kMostPaths. If `own_ips` is empty, the kernel chooses the interface of a single path.
std::vector<Path> pair_interfaces(const std::vector<std::string>& own_ips,
                                  const std::vector<std::string>& addresses);

// The part of a record about the channel of the opposite direction.
struct Handled {
  uint32_t channel = 0;
  uint64_t count = 0;
};

// Payloads up to this size are copied when they are sent, and their send ends at once. Larger ones
// are sent from the caller's memory, and their send ends when the receiver has acknowledged it.
inline constexpr size_t kMostCopiedBytes = 4096;

}  // namespace ringdist::tcp
