// A group's sends and receives: gives each a name that both ends can work out, and binds receives
// to what has arrived.
//
// The i-th send of a to b with a tag meets the i-th receive that b posts for it: one that names a,
// or one for any source, whichever was posted first. A receive is bound when the first message of
// a send is here, so before that it may still turn out to be for any of its sources. What arrives
// before its receive is parked: data of small messages, of longer ones the header alone.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/op/run.h"

namespace ringdist {

// Names of sends, where collectives have their numbers: a mark, the tag, a count per (source,
// destination, tag) that may wrap.
struct SendName {
  static constexpr uint64_t kMark = uint64_t{1} << 63;
  static bool names(uint64_t op) { return (op & kMark) != 0; }
  static uint64_t make(int32_t tag, uint32_t count) {
    return kMark | static_cast<uint64_t>(tag) << 32 | count;
  }
  static int32_t tag(uint64_t op) { return static_cast<int32_t>((op & ~kMark) >> 32); }
};

// Data up to here travels before the receiver has asked for it.
inline constexpr size_t kEagerBytes = 4096;

// What came before the op that it belongs to.
struct ParkedMessage {
  MessageHeader header;
  PooledBlock payload;
};

class PointToPoint {
 public:
  explicit PointToPoint(Group& group) : group_(group) {}

  // The group is ready: starts a send, binds a receive or keeps it until something arrives.
  void enqueue(std::shared_ptr<Op> op);
  void on_message(const MessageHeader& header, ConstBytes payload);
  void finished(const OpRun& run);

  // All ops, none of which may run on: those that had begun with their run.
  using EachOp = std::function<void(const std::shared_ptr<Op>& op, OpRun* run)>;
  void stop(const EachOp& each);

  bool idle() const { return sends_.empty() && receives_.empty() && posted_count_ == 0; }
  bool is_oldest_receive(const OpRun& run) const;
  void grant_waiting();
  // Calls each for every op that is not finished.
  void for_each(const EachOp& each) const;
  std::string dump() const;

 private:
  // The other end, and the name.
  using Key = std::pair<int, uint64_t>;
  // Of one tag: receives that wait for a message, messages that wait for a receive, oldest first.
  struct Waiting {
    std::deque<std::shared_ptr<Op>> posted;
    std::deque<Key> arrived;
    bool empty() const { return posted.empty() && arrived.empty(); }
  };

  void send(std::shared_ptr<Op> op);
  void match(int32_t tag);
  void bind(std::shared_ptr<Op> op, Key key);
  std::shared_ptr<OpRun> make_run(std::shared_ptr<Op> op, Key key);
  void deliver(OpRun& run, const MessageHeader& header, ConstBytes payload);

  Group& group_;
  std::map<std::pair<int, int32_t>, uint32_t> sent_;  // (destination, tag) -> sends so far
  std::map<Key, std::shared_ptr<OpRun>> sends_;
  std::map<Key, std::shared_ptr<OpRun>> receives_;  // bound
  std::map<int32_t, Waiting> waiting_;
  std::map<Key, std::vector<ParkedMessage>> parked_;
  size_t posted_count_ = 0;
};

}  // namespace ringdist
