#include "engine/group_bootstrap.h"

#include <utility>

#include "base/current_exception.h"
#include "base/log.h"

namespace ringdist {

GroupBootstrap::GroupBootstrap(std::shared_ptr<Context> context, std::string name, int rank,
                               int size, TimePoint deadline)
    : context_(std::move(context)),
      name_(std::move(name)),
      rank_(rank),
      size_(size),
      deadline_(deadline) {}

void GroupBootstrap::log_phase(const std::string& text) const {
  log(LogLevel::kDebug, "group '" + name_ + "': " + text);
}

Result<ResolvedGroup> GroupBootstrap::form(const Named& named) {
  const auto name = [&](uint64_t nonce) {
    if (nonce_ != 0 || nonce == 0) return;
    nonce_ = nonce;
    named(nonce);
  };
  if (size_ > 1) name(known_nonce());
  auto found = resolve();
  if (!found.ok()) return found;
  ResolvedGroup& formed = found.value();
  know(formed);
  if (size_ == 1) return found;
  name(formed.membership.nonce);
  const Error unreachable = connect_members(formed);
  if (Error error = connect(formed)) return on_member_error(error);
  log_phase("linked to the others' control planes, as they are");
  if (unreachable) return unreachable;
  log_formed(formed);
  return found;
}

void GroupBootstrap::run(const Named& named, const Ended& ended) {
  const auto outcome = [&]() -> Result<ResolvedGroup> {
    try {
      return form(named);
    } catch (...) {
      return current_exception_error();
    }
  }();
  try {
    ended(outcome);
  } catch (...) {
    promise_.set_value(current_exception_error());  // siblings wait for it
    throw;
  }
  promise_.set_value(outcome);
  if (outcome.ok()) remove_words();
}

void GroupBootstrap::group_failed(const std::weak_ptr<GroupBootstrap>& formation, TaskPool& pool) {
  auto held = formation.lock();
  if (!held) return;
  if (held->known_nonce() != 0) held->shorten(Clock::now());
  pool.run([held = std::move(held)] {});  // a lane must not be the last to hold it, with its store
}

void GroupBootstrap::withdraw(ErrorKind kind, const std::string& why, bool process_ends) {
  if (nonce_ == 0 && size_ > 1) publish_withdrawal(kind, why, process_ends);
}

void GroupBootstrap::announce_failure(const Error& cause) {
  const uint64_t nonce = nonce_;
  const bool leaves = deadline_.cancelled;
  if (nonce == 0 && leaves) return;                                // whoever did it has said so
  if (nonce == 0) return withdraw(cause.kind(), cause.message());  // an abort's word stays
  flood(leaves ? make_notice(leaves_, nonce, /*generation=*/0, rank_, /*op=*/0)
               : abort_notice(nonce, /*generation=*/0, rank_, /*op=*/0, cause));
}

void GroupBootstrap::flood(const Notice& notice) { context_->control().flood(notice.encode()); }

Error GroupBootstrap::connect(const ResolvedGroup& formed) {
  return context_->control().connect_group(nonce_, rank_, formed.processes, deadline_);
}

}  // namespace ringdist
