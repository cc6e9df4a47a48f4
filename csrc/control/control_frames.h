// The bytes of control connections: frames of a little-endian u32 body length, a u8 type and the
// body. Encoding and decoding only; whatever arrives ends in a value or an Error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"

namespace ringdist {

enum class FrameType : uint8_t {
  kHello = 0x01,    // the dialing side begins
  kWelcome = 0x02,  // u64 context id: the link is open
  kHeld = 0x03,     // u64 context id: reached, but that process does not know the group yet
  kRefused = 0x04,  // text
  kLetters = 0x05,  // ControlHello: kLetter frames follow, this is no control connection
  kLetter = 0x06,   // to the process that accepts them (ControlDelegate)
  kHeartbeat = 0x10,
  kLost = 0x11,    // PeerDeparture
  kLeft = 0x12,    // PeerDeparture without text; about the sender itself: graceful shutdown
  kFlood = 0x13,   // FloodRecord
  kNeed = 0x14,    // u8: 1 if the sender needs this connection
  kExits = 0x15,   // the sender's process is about to end; that is no death
  kSeen = 0x16,    // the answer to kExits
  kFormed = 0x17,  // GroupFormed
  kDumpRequest = 0x20,
  kDump = 0x21,  // text
};

inline constexpr size_t kMaxFrameBody = size_t{1} << 20;

struct Frame {
  FrameType type;
  ConstBytes body;  // valid until the reader's next call
};

std::vector<std::byte> make_frame(FrameType type, ConstBytes body = {});
std::vector<std::byte> make_frame(FrameType type, std::string_view text);

// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  // Larger bodies are an Error; a connection that has not been let in gets little memory.
  void set_limit(size_t body_bytes) { limit_ = body_bytes; }
  void append(ConstBytes bytes);
  // So that the next append() of so many bytes needs no memory.
  void make_room(size_t bytes);
  size_t limit() const { return limit_; }
  // The next whole frame, or nothing yet. After an Error the stream is of no use.
  Result<std::optional<Frame>> next();
  // The frame that next() gave last comes again.
  void put_back(const Frame& frame);

 private:
  std::vector<std::byte> bytes_;
  size_t used_ = 0;
  size_t limit_ = kMaxFrameBody;
};

struct ControlHello {
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t nonce = 0;  // of a group that both are in; 0 on local links

  std::vector<std::byte> frame(FrameType type = FrameType::kHello) const;
  static std::optional<ControlHello> decode(ConstBytes body);
};

// That a process was lost, and why, or that it left.
struct PeerDeparture {
  uint64_t context_id = 0;
  std::string cause;

  std::vector<std::byte> frame(FrameType type) const;
  static std::optional<PeerDeparture> decode(ConstBytes body);
};

// Processes of a group that have found all others of it.
struct GroupFormed {
  uint64_t nonce = 0;
  std::vector<uint64_t> processes;

  std::vector<std::byte> frame() const;
  static std::optional<GroupFormed> decode(ConstBytes body);
};

struct FloodRecord {
  uint64_t origin = 0;
  uint64_t sequence = 0;
  ConstBytes payload;

  std::vector<std::byte> frame() const;
  static std::optional<FloodRecord> decode(ConstBytes body);  // the payload is a view into body
};

std::vector<std::byte> id_frame(FrameType type, uint64_t context_id);
std::optional<uint64_t> decode_id(ConstBytes body);
std::string decode_text(ConstBytes body);

}  // namespace ringdist
