// Wire format of control connections: frames of a little-endian u32 body length, a u8 type and the
// body. Encoding and decoding only, without I/O. Every input, however malformed, ends in a value or
// an Error. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"

namespace ringdist {

// Types of frames. On an open connection unknown types are ignored, so that later versions may add
// some.
enum class FrameType : uint8_t {
  kHello = 0x01,    // ControlHello: the dialing side begins
  kWelcome = 0x02,  // u64 context id: the link is open
  kHeld = 0x03,     // u64 context id: accepted, but that process does not have the group so far
  kRefused = 0x04,  // text: why the connection is refused
  kMembershipHello = 0x05,  // ControlHello: kMembership frames follow on it, and nothing else
  kMembership = 0x06,       // a membership message, to the process that accepts them
  kDataHello = 0x07,        // DataHello: messages of a transport follow on it
  kStoreRequest = 0x08,     // StoreRequest, to a store
  kStoreAnswer = 0x09,      // StoreAnswer, its answer
  kHeartbeat = 0x10,        // empty: the sender is alive
  kLost = 0x11,             // PeerDeparture
  // PeerDeparture without text. If it is about the sender itself, it is a graceful shutdown.
  kLeft = 0x12,
  kFlood = 0x13,        // FloodRecord
  kNeed = 0x14,         // u8: 1 if the sender needs this connection
  kExits = 0x15,        // the sender's process is about to end, which is no death
  kSeen = 0x16,         // answer to kExits
  kFormed = 0x17,       // GroupFormed
  kDumpRequest = 0x20,  // requests a report for a human
  kDump = 0x21,         // text: the report
  // Snapshots, as control/snapshot_relay.h describes them.
  kSnapshotRequest = 0x22,  // u8: kWholeJob, kWithOps, kWithStatistics
  kSnapshot = 0x23,         // text: JSON of one process
  kSnapshotEnd = 0x24,      // text: JSON, the last frame of the answer
  kSnapshotSearch = 0x25,   // SnapshotSearch, from member to member
  kSnapshotAnswer = 0x26,   // SnapshotAnswer, the way back
};

// Limit of a frame's body in bytes, on an open connection.
inline constexpr size_t kMaxFrameBody = size_t{1} << 20;

// A frame that was received.
struct Frame {
  FrameType type;
  ConstBytes body;  // valid until the reader's next call
};

// Returns the bytes of a frame. A text is cut at kMaxFrameBody; a longer `body` must not be given,
// because the receiver ends the connection.
std::vector<std::byte> make_frame(FrameType type, ConstBytes body = {});
std::vector<std::byte> make_frame(FrameType type, std::string_view text);

// Splits a stream of bytes into frames.
class FrameReader {
 public:
  // Sets the limit of bodies; a larger one is an Error. A connection that has not been admitted
  // gets a low limit, so that it takes little memory.
  void set_limit(size_t body_bytes) { limit_ = body_bytes; }
  // Adds bytes of the stream.
  void append(ConstBytes bytes);
  size_t limit() const { return limit_; }
  // Returns the next whole frame, or nothing if it is incomplete. After an Error (kProtocol) the
  // stream cannot be used any more.
  Result<std::optional<Frame>> next();

 private:
  std::vector<std::byte> bytes_;
  size_t used_ = 0;  // bytes that next() has returned
  size_t limit_ = kMaxFrameBody;
};

// First frame of a connection: the two processes, and a group that shows that they belong together.
struct ControlHello {
  uint64_t from = 0;
  uint64_t to = 0;
  // A group that both are in, or 0 for a host proof. In a kMembershipHello frame it is the id of
  // the group that the messages are about.
  uint64_t nonce = 0;

  std::vector<std::byte> frame(FrameType type = FrameType::kHello) const;
  static std::optional<ControlHello> decode(ConstBytes body);
};

// Report that a process was lost, and why, or that it has left.
struct PeerDeparture {
  uint64_t context_id = 0;
  std::string cause;  // empty if it left; printable, and at most 4096 bytes on the wire

  std::vector<std::byte> frame(FrameType type) const;
  static std::optional<PeerDeparture> decode(ConstBytes body);
};

// Members of a group that have found all other members. Part of the formation barrier.
struct GroupFormed {
  uint64_t nonce = 0;
  std::vector<uint64_t> processes;

  std::vector<std::byte> frame() const;
  static std::optional<GroupFormed> decode(ConstBytes body);
};

// A notice on its way to all processes. Origin and sequence number identify it, so that it counts
// once.
struct FloodRecord {
  uint64_t origin = 0;  // context id
  uint64_t sequence = 0;
  ConstBytes payload;

  std::vector<std::byte> frame() const;
  static std::optional<FloodRecord> decode(ConstBytes body);  // payload: a view into body
};

// Bits of a request for a snapshot. kWholeJob includes the processes of all groups of the receiver.
// With kWithOps each process adds its latest ops, and with kWithStatistics the statistics of its
// ops and peers. With kWithStack it adds the Python stack of its main thread, which gets a signal
// for that.
inline constexpr uint8_t kWholeJob = 1;
inline constexpr uint8_t kWithOps = 2;
inline constexpr uint8_t kWithStatistics = 8;
inline constexpr uint8_t kWithStack = 16;
// A bit of searches only: the answers are samples of calls, see ControlDelegate::sample_calls().
inline constexpr uint8_t kCalls = 4;

// Names a snapshot.
struct SnapshotId {
  uint64_t origin = 0;  // context id of the process that gets the answers
  uint64_t number = 0;  // counts its snapshots

  auto operator<=>(const SnapshotId&) const = default;
};

// Search for the processes of a snapshot.
struct SnapshotSearch {
  SnapshotId id;
  uint8_t request = 0;  // kWithOps, kWithStatistics and kWithStack, or kCalls

  std::vector<std::byte> frame() const;
  static std::optional<SnapshotSearch> decode(ConstBytes body);
};

// Answer of one process to a snapshot.
struct SnapshotAnswer {
  SnapshotId id;
  uint64_t context_id = 0;        // the process that answers
  std::string json;               // its state, at most 512 KiB; or a sample of calls
  std::vector<uint64_t> stopped;  // processes of its host that it finds stopped

  std::vector<std::byte> frame() const;
  static std::optional<SnapshotAnswer> decode(ConstBytes body);
};

// Frames with only a context id, and text bodies. The decoder returns nothing for malformed bytes.
std::vector<std::byte> id_frame(FrameType type, uint64_t context_id);
std::optional<uint64_t> decode_id(ConstBytes body);
std::string decode_text(ConstBytes body);

}  // namespace ringdist
