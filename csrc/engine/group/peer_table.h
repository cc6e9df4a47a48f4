// All ranks of a group, this one among them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "engine/group/group_descriptor.h"

namespace ringdist {

// Another rank of a group, as this one knows it: how it is reached, and whether it is still there.
class OpExecution;

class Peer {
 public:
  explicit Peer(GroupMember member = {}) : member(std::move(member)) {}

  enum class State : uint8_t {
    kHere,
    kExiting,  // its process is about to end; until it has, what it owes may come
    kLeft,     // it destroyed the group, or ended it
    kExited,   // its process ended, in good order, without destroying the group
    kLost,     // its process died
  };

  State presence() const { return presence_; }
  // Sends to it need not arrive, and nothing more comes but what is on its way.
  bool departed() const { return presence_ >= State::kLeft; }
  // Why it died; success if it did not.
  const Error& loss() const { return loss_; }
  // The last op that it takes part in, if it has said so; of one that is gone in good order, 0 if
  // it has not.
  std::optional<uint64_t> announced_last_op() const { return last_op_; }
  // The same, once it is gone.
  std::optional<uint64_t> last_op() const;
  // When it said so or was found dead.
  TimePoint departed_at() const { return departed_at_; }

  // It says that it leaves; what it says later holds.
  void mark_left(uint64_t last_op, TimePoint now);
  // It says that its process is about to end; so does this, and who is gone stays gone.
  void mark_exiting(uint64_t last_op, TimePoint now);
  // Its process has ended in good order. True if it is gone by that.
  bool mark_exited(TimePoint now);
  // Its process has died. The same; of one that has said that it leaves, that is no death.
  bool mark_lost(const Error& cause, TimePoint now);

  // It has aborted its receives: sends to it that do not progress never end.
  void abort_receives(TimePoint now) { receives_aborted_at_ = now; }
  bool aborted_receives_for(Duration time, TimePoint now) const {
    return receives_aborted_at_ && now - *receives_aborted_at_ >= time;
  }

  // The connection to it broke, which is a symptom: whoever knows more will say so soon. The first
  // cause stays.
  void break_connection(const Error& cause, TimePoint now);
  bool broken() const { return static_cast<bool>(breakage_); }
  bool broken_for(Duration time, TimePoint now) const {
    return broken() && now - broken_since_ >= time;
  }
  const Error& breakage() const { return breakage_; }

  GroupMember member;
  std::vector<std::pair<OpExecution*, int>> blocked;  // steps that wait for early credit

 private:
  State presence_ = State::kHere;
  std::optional<uint64_t> last_op_;
  TimePoint departed_at_;
  Error loss_;
  std::optional<TimePoint> receives_aborted_at_;
  TimePoint broken_since_;
  Error breakage_;
};

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

  // Of those that are gone in good order, the one whose last op is the lowest; -1: none.
  int first_leaver() const;
  // Some connection is broken, and nobody has said why yet.
  bool any_in_doubt() const;
  // Connections that broke before have ended other groups: this one uses others. One to a process
  // that is gone counts as broken.
  void connect_anew(TimePoint now);
  // Why a rank that is gone is.
  Error departure(int peer) const;

  // "rank 3 (pid 123 on host x)"; any number.
  std::string describe_rank(int peer) const;
  // The first few of the ranks, each as `name` puts it.
  template <typename Name>
  std::string list(const std::vector<int>& ranks, const Name& name) const;
  std::string list(const std::vector<int>& ranks) const {
    return list(ranks, [this](int peer) { return describe_rank(peer); });
  }
  // ", over shm to rank 1 2, ucx to rank 3"
  std::string links() const;

 private:
  static constexpr size_t kNamed = 4;  // ranks in a line

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
