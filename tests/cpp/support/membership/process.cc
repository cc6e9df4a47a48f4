#include "support/membership/process.h"

#include <utility>

#include "support/membership/world.h"

namespace ringdist::membership {

void Process::be_member(std::unique_ptr<GenerationLog> generations, uint64_t group_id, int store) {
  generations_ = std::move(generations);
  store_ = store;
  group_id_ = group_id;
}

std::optional<int64_t> Process::frozen(uint64_t group_id) const {
  const auto found = frozen_at_.find(group_id);
  return found == frozen_at_.end() ? std::nullopt : std::optional(found->second);
}

void Process::send(ProcessId to, const ConsensusMessage& message) {
  if (!alive) return;  // the process died during the call that sends this
  if (sends_left == 0) return world_.kill(index_);
  if (sends_left > 0) --sends_left;
  world_.send(index_, index_of(to), message);
}

// Sends to a process of the same host. Returns false at random, as if the socket were full.
bool Process::send_near(ProcessId to, const ConsensusMessage& message) {
  if (!alive || world_.is_full()) return !alive;
  send(to, message);
  return true;
}

bool Process::is_near(ProcessId process) {
  return world_.process(index_of(process)).host() == host_;
}

PromiseInfo Process::stop_and_report() {
  if (!frozen_) {
    frozen_.emplace();
    frozen_->first_unfinished = ops_ + 1;
    frozen_->store = world_.store_name(store_);
    frozen_->reaches_store = world_.reaches_store(index_);
    frozen_->offers_store = "of process " + std::to_string(index_);
    frozen_->formed = (ops_ + static_cast<int64_t>(index_)) % 5 != 0;
    for (const ProcessId one : candidates_) frozen_->newcomers.push_back({one, "entry"});
    frozen_at_[group_id_] = ops_ + 1;
  }
  return *frozen_;
}

void Process::read_vote(const Ballot& ballot) { world_.read_vote(index_, ballot); }

void Process::cast_vote(const Ballot& ballot, const std::optional<Accepted>& before,
                        const Accepted& vote) {
  world_.cast_vote(index_, ballot, before, vote);
}

void Process::on_installed(const Decision& decision) {
  if (!alive) return;
  const uint64_t from = std::exchange(group_id_, generations_->generation().nonce);
  frozen_.reset();
  ops_ = 0;
  for (const ProcessId member : decision.members) candidates_.erase(member);
  store_ = world_.store_named(decision.store);
  world_.on_installed(index_, from, decision);
}

void Process::on_begun() {
  if (alive) world_.on_begun(index_);
}

void Process::on_excluded(const Decision& decision) {
  if (!alive) return;
  const uint64_t from = std::exchange(group_id_, nonce_of(decision));
  world_.on_excluded(index_, from, decision);
}

}  // namespace ringdist::membership
