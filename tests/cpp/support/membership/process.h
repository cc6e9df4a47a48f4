// A process of a world: GenerationLog, and a caller that wants ops, with all that a real one would
// have around it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "membership/paxos/generation_log.h"

namespace ringdist::membership {

class World;

class Process final : public GenerationLogDelegate {
 public:
  // Its number in the world names it.
  Process(World& world, int index, int host) : world_(world), index_(index), host_(host) {}

  static ProcessId id_of(int index) { return static_cast<ProcessId>(index) + 1; }
  static int index_of(ProcessId id) { return static_cast<int>(id) - 1; }
  ProcessId id() const { return id_of(index_); }
  int index() const { return index_; }
  int host() const { return host_; }
  int store() const { return store_; }

  // Of the first generation, or as one who was admitted. `store`: the one that it uses.
  void be_member(std::unique_ptr<GenerationLog> generations, uint64_t group_id, int store);
  bool is_member() const { return generations_ != nullptr; }
  GenerationLog& generations() { return *generations_; }
  // The generation that it is in, or that goes on without it.
  uint64_t group_id() const { return group_id_; }
  bool excluded() const {
    return is_member() && generations_->state() == GenerationLog::State::kExcluded;
  }
  std::optional<int64_t> frozen(uint64_t group_id) const;
  // What it has said of itself in the present generation.
  const std::optional<PromiseInfo>& standing() const { return frozen_; }

  void add_candidate(ProcessId process) { candidates_.insert(process); }
  void drop_candidate(ProcessId process) { candidates_.erase(process); }
  // The caller runs another op if it may.
  void run_op() {
    if (is_member() && generations_->state() == GenerationLog::State::kBegun && !frozen_) ++ops_;
  }

  bool alive = true;
  bool stopped = false;
  int sends_left = -1;                      // until it is killed; -1: it is not
  std::deque<std::function<void()>> inbox;  // what waits while it is stopped
  std::optional<TimePoint> tick_at;         // of the earliest tick that is under way

  void send(ProcessId to, const ConsensusMessage& message) override;
  bool send_near(ProcessId to, const ConsensusMessage& message) override;
  bool is_near(ProcessId process) override;
  PromiseInfo stop_and_report() override;
  void read_vote(const Ballot& ballot) override;
  void cast_vote(const Ballot& ballot, const std::optional<Accepted>& before,
                 const Accepted& vote) override;
  void on_installed(const Decision& decision) override;
  void on_begun() override;
  void on_excluded(const Decision& decision) override;

 private:
  World& world_;
  const int index_;
  const int host_;
  int store_ = 0;
  std::unique_ptr<GenerationLog> generations_;
  uint64_t group_id_ = 0;
  int64_t ops_ = 0;
  std::optional<PromiseInfo> frozen_;
  std::map<uint64_t, int64_t> frozen_at_;  // the first op that was unfinished, by generation
  std::set<ProcessId> candidates_;
};

}  // namespace ringdist::membership
