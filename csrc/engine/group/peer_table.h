// All ranks of a group, this one among them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/group/peer.h"

namespace ringdist {

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
