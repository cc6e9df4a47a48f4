// The ranks of a group, including this one: how each is reached, whether it is present, and which
// of this rank's steps wait for its eager credit.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "engine/group/group_descriptor.h"

namespace ringdist {

// Execution that owns the steps in Peer::blocked.
class OpExecution;

struct PeerTraffic;  // engine/op/op_statistics.h

// A rank of the group as seen from this rank: its transport and its presence. A peer departs when
// it leaves in good order or is lost; then it stays departed.
class Peer {
 public:
  explicit Peer(GroupMember member = {}) : member(std::move(member)) {}

  // Presence of a peer. The states from kLeft on are departures.
  enum class State : uint8_t {
    kHere,
    kExiting,  // its process is about to end; until then, its data may still arrive
    kLeft,     // it destroyed the group, or failed it
    kExited,   // its process ended in good order without destroying the group
    kLost,     // its process died or was silent too long
  };

  State presence() const { return presence_; }
  // Returns true if the peer has left or is lost. Sends to it need not arrive, and nothing more is
  // received but messages already in flight.
  bool departed() const { return presence_ >= State::kLeft; }
  // Returns the cause of its loss; success unless kLost.
  const Error& loss() const { return loss_; }
  // Returns the last op that the peer takes part in, if it has announced one. If its process exited
  // in good order without an announcement, returns 0.
  std::optional<uint64_t> announced_last_op() const { return last_op_; }
  // Returns the same, or nothing while the peer is only about to exit.
  std::optional<uint64_t> last_op() const;
  // Returns the time of the last announcement or of the departure.
  TimePoint departed_at() const { return departed_at_; }

  // Records the announcement that the peer leaves after `last_op`. A later announcement replaces an
  // earlier one. A peer that has announced its exit departs only when its process has ended.
  void mark_left(uint64_t last_op, TimePoint now);
  // Records the announcement that the peer's process is about to end. Likewise replaces an earlier
  // one, but a departed peer stays departed.
  void mark_exiting(uint64_t last_op, TimePoint now);
  // Records that its process has ended in good order. Returns true if the peer departed by this.
  bool mark_exited(TimePoint now);
  // Records the loss of its process. Returns true if the peer departed by this. If the peer has
  // announced its exit, this counts as that exit and not as a loss.
  bool mark_lost(const Error& cause, TimePoint now);

  // Records that the peer has aborted its receives. Sends to it that do not progress will never
  // complete.
  void abort_receives(TimePoint now) { receives_aborted_at_ = now; }
  bool aborted_receives_for(Duration time, TimePoint now) const {
    return receives_aborted_at_ && now - *receives_aborted_at_ >= time;
  }

  // Records that the connection to it broke, which is only a symptom: a notice with the reason is
  // likely to follow. Only the first error is kept.
  void break_connection(const Error& cause, TimePoint now);
  bool broken() const { return static_cast<bool>(breakage_); }
  bool broken_for(Duration time, TimePoint now) const {
    return broken() && now - broken_since_ >= time;
  }
  const Error& breakage() const { return breakage_; }

  GroupMember member;
  std::shared_ptr<PeerTraffic> traffic;               // set by GroupMessageSender
  std::vector<std::pair<OpExecution*, int>> blocked;  // steps that wait for eager credit

 private:
  State presence_ = State::kHere;
  std::optional<uint64_t> last_op_;
  TimePoint departed_at_;
  Error loss_;
  std::optional<TimePoint> receives_aborted_at_;
  TimePoint broken_since_;
  Error breakage_;
};

// All peers by rank, with functions that describe them for messages.
class PeerTable {
 public:
  explicit PeerTable(const GroupDescriptor& membership);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  Peer& operator[](int rank) { return peers_[static_cast<size_t>(rank)]; }
  const Peer& operator[](int rank) const { return peers_[static_cast<size_t>(rank)]; }
  auto begin() { return peers_.begin(); }
  auto end() { return peers_.end(); }
  auto begin() const { return peers_.begin(); }
  auto end() const { return peers_.end(); }

  // Among the peers that left in good order, returns the one with the lowest last op; -1 if there
  // is none.
  int first_leaver() const;
  // Returns true if a connection is broken and no notice has explained it yet.
  bool any_in_doubt() const;
  // Renews connections that broke before this group was made: these failed other groups, and this
  // one uses new ones. A peer that still cannot be reached counts as broken.
  void connect_anew(TimePoint now);
  // Returns the Error for the departure of a peer.
  Error departure(int peer) const;

  // Returns a description such as "rank 3 (pid 123 on host x)". `peer` may be any number, also from
  // the wire.
  std::string describe_rank(int peer) const;
  // Formats the first kNamed ranks with `name`, then "and N more".
  template <typename Name>
  std::string list(const std::vector<int>& ranks, const Name& name) const;
  std::string list(const std::vector<int>& ranks) const {
    return list(ranks, [this](int peer) { return describe_rank(peer); });
  }
  // Returns the transports in use, such as ", over shm to rank 1 2, ucx to rank 3".
  std::string links() const;

 private:
  static constexpr size_t kNamed = 4;  // ranks that a message names

  const int rank_;
  std::vector<Peer> peers_;
};

template <typename Name>
std::string PeerTable::list(const std::vector<int>& ranks, const Name& name) const {
  std::string out;
  for (size_t i = 0; i < ranks.size() && i < kNamed; ++i)
    out += (out.empty() ? "" : ", ") + name(ranks[i]);
  if (ranks.size() > kNamed) out += " and " + std::to_string(ranks.size() - kNamed) + " more";
  return out;
}

}  // namespace ringdist
