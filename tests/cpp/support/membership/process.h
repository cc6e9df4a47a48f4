// A process of a simulated World: a GenerationLog, and fakes of its caller and of its
// surroundings.
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
  // `index` is the number of the process in the world.
  Process(World& world, int index, int host) : world_(world), index_(index), host_(host) {}

  static ProcessId id_of(int index) { return static_cast<ProcessId>(index) + 1; }
  static int index_of(ProcessId id) { return static_cast<int>(id) - 1; }
  ProcessId id() const { return id_of(index_); }
  int index() const { return index_; }
  int host() const { return host_; }
  int store() const { return store_; }

  // Makes the process a member, either of the first generation or as an admitted newcomer. `store`
  // is the store that it uses.
  void be_member(std::unique_ptr<GenerationLog> generations, uint64_t group_id, int store);
  bool is_member() const { return generations_ != nullptr; }
  GenerationLog& generations() { return *generations_; }
  // Returns the generation that the process is in, or the generation that excludes it.
  uint64_t group_id() const { return group_id_; }
  bool excluded() const {
    return is_member() && generations_->state() == GenerationLog::State::kExcluded;
  }
  std::optional<int64_t> frozen(uint64_t group_id) const;
  // Returns its promise info of the present generation, if it has stopped and reported.
  const std::optional<PromiseInfo>& info() const { return frozen_; }

  void add_candidate(ProcessId process) { candidates_.insert(process); }
  void drop_candidate(ProcessId process) { candidates_.erase(process); }
  // The caller runs one more op, if ops may run.
  void run_op() {
    if (is_member() && generations_->state() == GenerationLog::State::kBegun && !frozen_) ++ops_;
  }

  bool alive = true;
  bool stopped = false;
  int sends_left = -1;                      // number of messages until the process is killed, or -1
  std::deque<std::function<void()>> inbox;  // actions that wait while the process is stopped
  std::optional<TimePoint> tick_at;         // time of the earliest pending tick

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
  std::map<uint64_t, int64_t> frozen_at_;  // by generation: its first unfinished op when it stopped
  std::set<ProcessId> candidates_;
};

}  // namespace ringdist::membership
