// One rank's side of a group's generations, one after the other: its Generations with the post and
// the group's owner as its host. Named by the nonce of the first generation. The membership
// thread's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consensus/generations.h"
#include "membership/lineage_owner.h"
#include "membership/post.h"

namespace ringdist {

// Where a lineage begins.
struct Origin {
  uint64_t nonce = 0;
  std::vector<ProcessId> members;  // by rank
};

class Lineage final : private GenerationsHost {
 public:
  // Runs a task on the membership thread if the lineage is still there then; any thread.
  using Later = std::function<void(std::function<void(Lineage&, TimePoint)>)>;

  Lineage(ProcessId self, const Origin& origin, const Pace& pace, Post& post,
          std::shared_ptr<LineageOwner> owner, Later later);

  void begin(TimePoint now);
  // Of the generation after that one, if it is still the present one: somebody wants it.
  void begin_after(uint32_t generation, TimePoint now);
  // An empty one: its sender has no part in the group any more.
  void on_letter(ProcessId from, ConstBytes letter, TimePoint now);
  void on_death(ProcessId process, TimePoint now);
  void give_up(ProcessId process, TimePoint now);
  std::optional<TimePoint> next() const { return generations_.next(); }
  // Also has the ends of those told who are near, while something is to be decided.
  void tick(TimePoint now);
  std::string describe(TimePoint now) const { return generations_.describe(now); }

 private:
  // GenerationsHost
  void send(ProcessId to, const ConsensusMessage& message) override;
  bool is_near(ProcessId process) override;
  bool send_near(ProcessId to, const ConsensusMessage& message) override;
  Standing freeze() override { return owner_->freeze(); }
  void read_vote(const Ballot& ballot) override;
  void cast_vote(const Ballot& ballot, const std::optional<Accepted>& before,
                 const Accepted& vote) override;
  void on_installed(const Decision& decision) override { owner_->on_installed(decision); }
  void on_begun() override { owner_->on_begun(); }
  void on_excluded(const Decision& decision) override { owner_->on_excluded(decision); }

  bool write(ProcessId to, const ConsensusMessage& message, bool certain);
  void watch(TimePoint now);

  const ProcessId self_;
  const uint64_t nonce_;
  Post& post_;
  const std::shared_ptr<LineageOwner> owner_;
  const Later later_;
  TimePoint now_;
  Generations generations_;
};

}  // namespace ringdist
