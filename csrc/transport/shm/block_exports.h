// The blocks of this process's shared tensors that one peer may read where they lie. A payload that
// lies in one need not be copied: the message names its place. With the lane's token held.
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
#include "transport/shm/segment_layout.h"
#include "transport/shm/shm_hello.h"

namespace ringdist::shm {

// What two ends of a link say of shared tensors, over its connection: the sender lends a block, and
// passes its file; the reader maps it, or has no room; the sender takes back what was freed. A loan
// is named in messages only once it is taken.
enum class ExportMessageType : uint32_t {
  kExport = 1,  // with the block's file
  kTaken,
  kRefused,
  kDetach,  // the reader unmaps it; no message in the ring names it
};

// Little-endian.
struct ExportMessage {
  uint64_t magic = kMagic;
  ExportMessageType word;
  uint32_t loan;
  uint64_t bytes = 0;  // of a block that is lent

  static constexpr uint64_t kMagic = 0x6e616f6c2d6d6873ull;
};

// False if it cannot be sent now.
bool send_export_message(const Fd& socket, const ExportMessage& note, const Fd* file = nullptr);

struct ReceivedExportMessage {
  ExportMessage note;
  Fd file;  // none where this process had no descriptor left for it
};
// Nothing if none is there. Errors: kPeerLost where the connection has ended; kProtocol for other
// bytes.
Result<std::optional<ReceivedExportMessage>> receive_export_message(const Fd& socket);

// The connection over which a process says what it lends to one peer (export_message.h): the
// lender's end. Dialed when there is something to lend, for a link that is open already; nobody
// waits for it, and without it payloads are copied. With the lane's token held.
class ExportConnection {
 public:
  // To the peer that listens at `address`.
  ExportConnection(std::string address, ContextId me, ContextId peer)
      : address_(std::move(address)), me_(me), peer_(peer) {}

  // True if something can be said; dials if there is no connection. `ring` is that of the link.
  // What has failed is tried again after a while only.
  bool open(uint32_t ring);
  bool is_open() const { return state_ == State::kOpen; }
  bool send(const ExportMessage& note, const Fd* file = nullptr);
  // What the peer has said, if anything. Errors as of receive_export_message(): it is to be lost.
  Result<std::optional<ReceivedExportMessage>> receive();
  // It is of no more use; the socket stays until close().
  void abandon();
  const Fd& socket() const { return socket_; }
  void close();

 private:
  enum class State { kClosed, kOpen, kLost };

  bool dial(uint32_t ring);

  const std::string address_;
  const ContextId me_;
  const ContextId peer_;
  State state_ = State::kClosed;
  Fd socket_;
  TimePoint dial_again_;
  bool warned_ = false;  // in the log
};

class BlockExports {
 public:
  BlockExports(std::string address, ContextId me, ContextId peer)
      : line_(std::move(address), me, peer) {}

  // Where the peer finds these bytes (segment_layout.h); nothing where it cannot, or not yet: a
  // block is offered when it is first asked for. `ring` is that of the link.
  std::optional<uint64_t> place(uint32_t ring, ConstBytes payload);
  // The connection has something to say. Error: kProtocol, for an answer that nobody asked for.
  Error on_event();
  // Tells the peer of blocks that were freed since; what cannot be told now is told by a later
  // call.
  void detach_freed();
  // No message will name one. What the peer has mapped stays there while its link does.
  void clear() { all_.clear(); }
  // True once after an offer: the next message tells the peer to look for it.
  bool take_hint() { return std::exchange(hint_, false); }
  // One that may come any moment.
  bool awaits_answer(TimePoint now) const;

  // The connection; there is none while nothing is lent.
  const Fd& socket() const { return line_.socket(); }
  bool needs_socket() const { return line_.is_open() && !all_.empty(); }
  void close_socket() { line_.close(); }
  // It is of no more use.
  void lose_socket();

 private:
  enum class State : uint8_t { kOffered, kTaken, kRefused };
  struct Export {
    uint32_t number;
    State state;
    std::shared_ptr<SharedBlock> block;
  };

  Export* find(const SharedBlock& block);
  void offer(uint32_t ring, std::shared_ptr<SharedBlock> block);
  Error on_message(const ExportMessage& note);
  uint32_t free_number();

  ExportConnection line_;
  std::vector<Export> all_;  // at most kMaxLoans
  uint32_t last_ = 0;        // number; that of another connection comes last, too
  uint64_t frees_seen_ = 0;
  TimePoint offered_;
  bool hint_ = false;
};

// The blocks of a peer's shared tensors that it lets this process read, as the receiving half of
// its link hears of them. With the lane's token held.
class BlockImports {
 public:
  // There is a new connection. What came over the former is kept for messages up to `last`, which
  // alone may name it.
  void begin(uint64_t last);
  // So many messages have been read.
  void read_until(uint64_t consumed);
  void clear();
  // Hears what the peer says, and answers. Errors: kPeerLost where the connection has ended;
  // kProtocol.
  Error on_event(const Fd& socket);
  // What lies at a place in a loan; nothing if it is none of the peer's blocks.
  std::optional<ConstBytes> find(uint64_t place, size_t bytes) const;

 private:
  Error on_message(const Fd& socket, const ReceivedExportMessage& heard);
  bool take(const ReceivedExportMessage& heard);

  std::map<uint32_t, Mapping> blocks_;
  std::map<uint32_t, Mapping> former_;  // of a connection that broke
  uint64_t former_until_ = 0;
};

}  // namespace ringdist::shm
