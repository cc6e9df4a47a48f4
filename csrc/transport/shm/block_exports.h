// Export of shared tensors (os/shared_block_registry.h) to a peer of this host. The peer maps the
// blocks of these tensors and reads payloads there. Such a payload is not copied: its message names
// the export and the offset in it. BlockExports is the sending side, BlockImports the receiving
// side.
//
// Threads: every class here requires the lane's progress lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "os/fd.h"
#include "os/memfd.h"
#include "os/shared_block_registry.h"
#include "transport/shm/key_proof.h"
#include "transport/shm/segment_layout.h"
#include "transport/shm/shm_hello.h"

namespace ringdist::shm {

// The messages about exports between the two ends of a channel, over a socket of their own. The
// sender exports a block and passes its file. The reader maps it, or refuses for lack of room. The
// sender detaches blocks that were freed. Messages in the ring name an export only once it is
// taken.
enum class ExportMessageType : uint32_t {
  kExport = 1,  // carries the block's file
  kTaken,       // the reader has mapped it
  kRefused,     // the reader cannot map it, so payloads are copied
  kDetach,      // the reader unmaps it; no message in the ring names it
};

// One message on the export connection. Little-endian, as it lies in memory.
struct ExportMessage {
  uint64_t magic = kMagic;
  ExportMessageType word = ExportMessageType::kExport;
  uint32_t export_id = 0;  // number of the export
  uint64_t bytes = 0;      // size of the block; kExport only

  static constexpr uint64_t kMagic = 0x6e616f6c2d6d6873ull;
};

// Sends a message, with a file if it exports a block. Returns false if it cannot be sent at this
// time.
bool send_export_message(const Fd& socket, const ExportMessage& note, const Fd* file = nullptr);

// A message, with the file that came along.
struct ReceivedExportMessage {
  ExportMessage note;
  Fd file;  // empty if this process had no descriptor left for it
};
// Receives the next message, or nothing if none is there. Returns kPeerLost if the connection has
// ended, and kProtocol for unknown bytes.
Result<std::optional<ReceivedExportMessage>> receive_export_message(const Fd& socket);

// The exporter's end of the export connection to one peer. It is dialed when there is something to
// export over a channel that is open already. Nothing waits for it: without it, payloads are
// copied.
class ExportConnection {
 public:
  // Creates a closed connection to the peer that listens at `address`. The key, or null, outlives
  // it.
  ExportConnection(std::string address, ContextId me, ContextId peer,
                   const TlsKey* tls_key = nullptr)
      : address_(std::move(address)), me_(me), peer_(peer), tls_key_(tls_key) {}

  // Returns true if messages can be sent. Dials if the connection is closed; `ring` identifies the
  // channel. After a failure it dials again only after one second. With a key, it is open once the
  // peer has shown that it has the key, too.
  bool open(uint32_t ring);
  // Returns true if the connection is dialed and not abandoned.
  bool is_open() const { return state_ == State::kOpen; }
  // Returns true between the dial and the next open() after the proof of the key.
  bool is_proving() const { return state_ == State::kProving; }
  // Sends a message if the connection is open. Returns true on success.
  bool send(const ExportMessage& note, const Fd* file = nullptr);
  // Receives the peer's next message, if any. After an error, which is that of
  // receive_export_message(), the caller must abandon the connection.
  Result<std::optional<ReceivedExportMessage>> receive();
  // Marks the connection as lost. The socket stays until close().
  void abandon();
  const Fd& socket() const { return socket_; }
  // Hangs up, also where a forked child holds a copy of the socket. Afterwards open() may dial
  // again.
  void close();

 private:
  enum class State { kClosed, kProving, kOpen, kLost };

  // Connects and begins the proof.
  void dial();
  // Continues the proof. Returns true once it is over.
  bool is_proven();
  // Abandons the connection, and logs the first failure.
  void fail(const Error& error);

  const std::string address_;
  const ContextId me_;
  const ContextId peer_;
  const TlsKey* const tls_key_;
  KeyProof proof_;
  State state_ = State::kClosed;
  Fd socket_;
  TimePoint dial_again_;
  bool warned_ = false;  // a failure has been logged
};

// The blocks of this process that one peer may read. Owned by the SendChannel to that peer.
class BlockExports {
 public:
  BlockExports(std::string address, ContextId me, ContextId peer, const TlsKey* tls_key)
      : line_(std::move(address), me, peer, tls_key) {}

  // Returns the address at which the peer finds the payload (export_address()). Returns nothing if
  // the payload is short, lies in no shared tensor or its block is not exported yet. The first
  // request for a block starts its export. A block that the peer has refused is not exported again
  // before clear(). `ring` identifies the channel.
  std::optional<uint64_t> place(uint32_t ring, ConstBytes payload);
  // Handles the peer's answers when the socket is readable. Returns kProtocol for an answer without
  // a request.
  Error on_event();
  // Detaches blocks that were freed since the last call. A detach message that cannot be sent is
  // sent by a later call.
  void detach_freed();
  // Forgets all exports, because no later message names one. The peer keeps its mappings as long as
  // its channel.
  void clear();
  // Returns true once after an export message was sent. The next message in the ring then carries
  // kExportAnnounced, so that the peer reads the export connection.
  bool take_hint() { return std::exchange(hint_, false); }
  // Returns true for a short time after an export, while its answer may come at any moment.
  bool awaits_answer(TimePoint now) const;

  // Returns the socket of the connection; empty while nothing is exported.
  const Fd& socket() const { return line_.socket(); }
  // Returns true if the socket must stay open and watched.
  bool needs_socket() const { return line_.is_proving() || (line_.is_open() && !all_.empty()); }
  void close_socket() { line_.close(); }
  // Abandons the connection and forgets all exports.
  void lose_socket();

 private:
  enum class State : uint8_t { kOffered, kTaken, kRefused };
  struct Export {
    uint32_t number;
    State state;
    std::shared_ptr<SharedBlock> block;
  };

  Export* find(const SharedBlock& block);
  // Exports a block: dials if necessary, and sends its file. If that fails, a later payload in the
  // block tries again.
  void offer(uint32_t ring, const std::shared_ptr<SharedBlock>& block);
  // Handles an answer. Returns kProtocol unless it is kTaken or kRefused for an export that waits
  // for it or was freed.
  Error on_message(const ExportMessage& note);
  uint32_t free_number();

  ExportConnection line_;
  std::vector<Export> all_;  // at most kMaxExports
  // The number given last. The next ones follow it, also on another connection, so that a number is
  // reused as late as possible.
  uint32_t last_ = 0;
  uint64_t frees_seen_ = 0;
  TimePoint offered_;
  bool hint_ = false;
};

// The mapped blocks of a peer's shared tensors. Owned by the RecvChannel from that peer.
class BlockImports {
 public:
  // Starts with a new connection. Blocks from the former one are kept for messages up to number
  // `last`, because no later message names them.
  void begin(uint64_t last);
  // Reports that so many messages of the ring have been read, so that blocks of a former connection
  // can be unmapped.
  void read_until(uint64_t consumed);
  // Unmaps all blocks.
  void clear();
  // Handles the messages of the peer and answers them. Returns kPeerLost if the connection has
  // ended, and kProtocol for messages that make no sense.
  Error on_event(const Fd& socket);
  // Returns the payload of `bytes` bytes at an export address. Returns nothing if it is not inside
  // a mapped block.
  std::optional<ConstBytes> find(uint64_t place, size_t bytes) const;

 private:
  Error on_message(const Fd& socket, const ReceivedExportMessage& heard);
  // Maps the block of a kExport message. Returns false if there is no file or no room.
  bool take(const ReceivedExportMessage& heard);

  std::map<uint32_t, Mapping> blocks_;
  std::map<uint32_t, Mapping> former_;  // blocks of a connection that has ended
  uint64_t former_until_ = 0;           // message number up to which former_ is kept
};

}  // namespace ringdist::shm
