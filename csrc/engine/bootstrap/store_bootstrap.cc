#include "engine/bootstrap/store_bootstrap.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "engine/bootstrap/derived_bootstrap.h"
#include "engine/bootstrap/rank_info_bootstrap.h"
#include "os/random.h"
#include "rendezvous/rendezvous.h"

namespace ringdist {
namespace {

constexpr Duration kMeetingTime = std::chrono::seconds(10);  // even on a busy machine
// Ranks that find each other write their host lists within milliseconds of each other.
constexpr Duration kListTime = std::chrono::seconds(1);

}  // namespace

StoreBootstrap::StoreBootstrap(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                               Decided decided)
    : RankInfoBootstrap(std::move(context), options, Clock::now() + options.timeout),
      decided_(std::move(decided)),
      rendezvous_(options.store, options.rank, options.members, this->context().tls_key(),
                  decided_.nonce == 0 && this->context().compares_ranks(), options.name) {}

// Draws the group's nonce, unless it was decided.
uint64_t StoreBootstrap::drawn() const { return decided_.nonce ? decided_.nonce : random_id(); }

Error StoreBootstrap::publish() {
  if (size() == 1) return {};
  auto entry = own_entry();
  if (!entry.ok()) {
    (void)publish_failure(*options().store, rank(), options().members, entry.error());
    return entry.error();
  }
  entry.value().nonce = rank() == 0 ? drawn() : 0;
  return rendezvous_.publish(entry.value());
}

void StoreBootstrap::publish_withdrawal(ErrorKind kind, const std::string& why, bool process_ends) {
  (void)rendezvous_.publish_withdrawal(kind, why, process_ends);
}

Error StoreBootstrap::on_member_error(const Error& error) const {
  const bool is_loss = error.kind() == ErrorKind::kTimeout || error.kind() == ErrorKind::kSystem;
  if (decided_.nonce == 0 || !is_loss || deadline().cancelled) return error;
  return Error(ErrorKind::kPeerLost, error.message()).blame(error.ranks());
}

Duration StoreBootstrap::peer_timeout() {
  const std::chrono::duration<double> timeout(context().config().peer_timeout);
  return std::chrono::duration_cast<Duration>(timeout);
}

// Newcomers get the peer timeout to publish themselves. Members that are lost or have left are
// reported at once.
Error StoreBootstrap::find_missing(TimePoint begun) {
  const auto lost = [](int one, const std::string& why) {
    return Error(ErrorKind::kPeerLost, "rank " + std::to_string(one) + " is lost: " + why)
        .blame(one);
  };
  const int size = static_cast<int>(decided_.members.size());
  for (int one = 0; one < size; ++one)
    if (const Error error = context().departed(decided_.members[static_cast<size_t>(one)]))
      return lost(one, error.message());
  if (Clock::now() - begun < peer_timeout()) return {};
  for (int one = decided_.survivor_count; one < size; ++one) {
    const auto has_published = rendezvous_.has_published(one);
    if (has_published.ok() && !has_published.value())
      return lost(one, "it wanted to become a member, and did not come");
  }
  return {};
}

// Phases: collect rank infos, agree on hosts, and if necessary open further transports and exchange
// addresses again.
Result<ResolvedGroup> StoreBootstrap::resolve() {
  if (size() == 1) return alone(drawn());
  log_phase("rank " + std::to_string(rank()) + " of " + std::to_string(size()) +
            " is looking for the others");
  const auto missing = [this, begun = Clock::now()] { return find_missing(begun); };
  auto collected = rendezvous_.collect(deadline(), missing);
  if (!collected.ok()) return on_member_error(collected.error());
  entries() = std::move(collected.value());
  for (size_t i = 0; i < decided_.members.size(); ++i)
    if (entries()[i].context_id != decided_.members[i])
      return Error(ErrorKind::kMismatch, "the store's entry of rank " + std::to_string(i) +
                                             " names another process than the members have "
                                             "decided on")
          .blame(static_cast<int>(i));
  log_phase("all " + std::to_string(size()) + " ranks are in the store");
  const uint64_t nonce = entries()[0].nonce;
  if (Error error = check_room(nonce)) return error;
  // All members are connecting at this point, so those of a later generation need little time.
  if (decided_.nonce != 0) shorten(Clock::now() + std::max(peer_timeout(), kMeetingTime));
  const auto prove = [this](const RankInfo& peer) { return this->prove(peer); };
  const auto lost = [this](const RankInfo& peer) { return context().lost(peer.context_id); };
  auto topology = rendezvous_.agree_on_hosts(entries(), prove, lost, deadline());
  if (!topology.ok()) {
    // Other ranks may read the lists of hosts although a death or withdrawal hides them from this
    // rank. Some lists may still be about to be written.
    const TimePoint until = Clock::now() + kListTime;
    auto late = rendezvous_.find_hosts(entries());
    while (!late.ok() && !deadline().cancelled && Clock::now() < until) {
      std::this_thread::sleep_for(Milliseconds(20));
      late = rendezvous_.find_hosts(entries());
    }
    if (late.ok()) know(found(nonce, late.value()));
    return on_member_error(topology.error());
  }
  know(found(nonce, topology.value()));
  if (Error error = check_separated(topology.value())) return error;
  log_phase("hosts agreed on: " + std::to_string(topology.value().hosts.size()));
  const bool guessed = spans_hosts() && std::ranges::any_of(entries(), [](const RankInfo& one) {
                         return one.guessed;
                       });
  const bool late = needs_late_transports(entries(), topology.value(), options().config.transport);
  if (guessed || late) {
    log_phase("opens the transports that reach the others");
    if (guessed) correct_network();
    const auto entry = own_entry(/*late=*/true);
    if (!entry.ok()) return entry.error();
    if (Error error = rendezvous_.exchange(entry.value(), entries(), lost, deadline()))
      return on_member_error(error);
  }
  if (Error error = check_addresses()) return error;
  return found(nonce, std::move(topology.value()));
}

std::shared_ptr<GroupBootstrap> NextGroupSpec::formation(std::shared_ptr<Context> context,
                                                         const CommunicatorOptions& options) const {
  if (!needs_rendezvous)
    return std::make_shared<AgreedBootstrap>(std::move(context), options, found);
  return std::make_shared<StoreBootstrap>(
      std::move(context), options,
      StoreBootstrap::Decided{found.membership.nonce, found.contexts(), survivor_count});
}

}  // namespace ringdist
