#include "engine/join_client.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "engine/op/message.h"
#include "rendezvous/sealed_store.h"

namespace ringdist {
namespace {

// Pause between reads of the advertisement, and longest wait between checks.
constexpr Duration kReadEvery = Milliseconds(200);

}  // namespace

Error JoinClient::prepare() {
  if (entry_) return {};
  const auto network = context_->network(options_.store_host);
  if (!network.ok()) return network.error();
  auto entry = context_->entry(network.value(), /*late=*/false, options_.config.transport);
  if (!entry.ok()) return entry.error();
  entry_ = std::move(entry.value());
  options_.state_in(*entry_);
  return {};
}

Error JoinClient::read_advertisement() {
  const auto value = options_.store->find(GroupAdvertisement::key(job_));
  if (!value.ok()) return value.error();
  if (!value.value()) return {};
  if (!context_->tls_key() && is_sealed(*value.value()))
    return {ErrorKind::kMismatch,
            "the group has a key or certificates, and this process has none: set "
            "RINGDIST_KEY_FILE or RINGDIST_CERT as its members do"};
  auto read = GroupAdvertisement::decode(*value.value(), kWireVersion);
  if (!read) return {ErrorKind::kProtocol, "the store's invitation is not of this version"};
  advertisement_ = std::move(read);
  return {};
}

Error JoinClient::refresh() {
  if (Clock::now() - read_at_ < kReadEvery) return {};
  read_at_ = Clock::now();
  store_error_ = read_advertisement();
  // Members that were found already can admit it without the store.
  if (store_error_) return membership_ ? Error() : store_error_;
  if (!advertisement_) return {};
  if (Error error = advertisement_->refusal(*entry_)) return error;
  // Another group may have replaced one that has ended, under the same job name.
  if (membership_ && membership_->group_id() != advertisement_->group_id) leave();
  if (!membership_) {
    if (context_->assembly().was_member(advertisement_->group_id))
      return {ErrorKind::kInvalidArgument,
              "this process was a member of the group before; only another one can come"};
    options_.name = advertisement_->name;
    options_.timeout = advertisement_->timeout;
    membership_ = std::make_shared<GroupMembership>(*context_, options_, *advertisement_, *entry_);
    membership_->register_group();
  }
  membership_->update_members(*advertisement_);
  return {};
}

std::optional<Result<ShrinkResult>> JoinClient::wait(TimePoint until) {
  if (Error error = prepare()) return error;
  const auto make = [context = context_](auto options, const auto& prospect, auto place) {
    return Communicator::create_next(context, std::move(options), prospect, std::move(place));
  };
  do {
    if (Error error = refresh()) return error;
    const TimePoint soon = std::min(until, Clock::now() + kReadEvery);
    if (!membership_) {
      std::this_thread::sleep_until(soon);
      continue;
    }
    auto outcome = membership_->await_admission(soon, make);
    if (!outcome) continue;
    if (outcome->ok()) membership_.reset();  // the group holds it
    return outcome;
  } while (Clock::now() < until);
  return std::nullopt;
}

Error JoinClient::none_yet() const {
  if (!advertisement_)
    return {ErrorKind::kTimeout, "no group of a job '" + job_ +
                                     "' takes newcomers at this store: its members have to call "
                                     "torch_ringdist.admit()"};
  if (advertisement_->most > 0 && advertisement_->members.size() >= advertisement_->most)
    return {ErrorKind::kTimeout, "the group has " + std::to_string(advertisement_->members.size()) +
                                     " ranks, which is the most (max_ranks): this process waited "
                                     "for one to end"};
  std::string who;
  for (const GroupAdvertisement::Member& one : advertisement_->members)
    who += (who.empty() ? "" : ", ") + one.where;
  return {ErrorKind::kTimeout, "generation " + std::to_string(advertisement_->generation) +
                                   " of the group has not let this process in: its members (" +
                                   who + ") have ended, or do not reach this process at " +
                                   entry_->tcp_address + ", or it does not reach them: " +
                                   context_->assembly().describe(advertisement_->group_id) +
                                   (store_error_ ? "; " + store_error_.message() : "")};
}

void JoinClient::leave() {
  if (membership_) membership_->leave(0);
  membership_.reset();
}

}  // namespace ringdist
