// The blocks of this process's shared tensors that one peer may read where they lie. A payload that
// lies in one need not be copied: the message names its place. With the lane's token held.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "os/shared_block_registry.h"
#include "transport/shm/export_connection.h"
#include "transport/shm/segment_layout.h"

namespace ringdist::shm {

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

}  // namespace ringdist::shm
