#include "engine/membership/join_acceptor.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"
#include "engine/op/message.h"
#include "os/socket.h"

namespace ringdist {
namespace {

constexpr Duration kNewcomerTime = Milliseconds(700);  // after which a silent newcomer is dropped
constexpr Duration kForOthers = Milliseconds(150);  // wait for newcomers that were started together
constexpr size_t kMaxPending = 1024;
constexpr size_t kMostEntry = 4096;  // bytes of a newcomer's rank info
constexpr size_t kMostAtOnce = 128;  // a decision contains the infos of all its newcomers
constexpr Duration kFirstHostPause =
    std::chrono::seconds(2);  // for a host after its first failed join
constexpr Duration kLongestHostPause = std::chrono::minutes(1);
// After which a failed join is forgotten.
constexpr Duration kFailureTime = std::chrono::minutes(5);

// Attempts to write an advertisement after the first, and the pause between them.
constexpr int kMoreTries = 4;
constexpr Duration kTryAgain = Milliseconds(500);

// Decodes a newcomer's rank info. Returns nothing if it is malformed, of another wire version or of
// another process.
std::optional<RankInfo> entry_of(const Newcomer& newcomer) {
  auto entry = RankInfo::decode(
      {reinterpret_cast<const std::byte*>(newcomer.entry.data()), newcomer.entry.size()},
      kWireVersion);
  // Info of another version has no more fields.
  const bool good =
      entry && entry->wire_version == kWireVersion && entry->context_id == newcomer.process;
  return good ? entry : std::nullopt;
}

}  // namespace

bool JoinQueue::request_join(const Newcomer& newcomer, bool reached, TimePoint now) {
  const bool is_new = !pending_.contains(newcomer.process);
  if (is_new && (newcomer.entry.size() > kMostEntry || !make_room(now))) return false;
  PendingJoin& request = pending_[newcomer.process];
  if (is_new) request.entry = newcomer.entry;
  request.heard_at = now;
  if (!reached)
    request.reached_at.reset();
  else if (!request.reached_at)
    request.reached_at = now;
  return is_new;
}

bool JoinQueue::make_room(TimePoint now) {
  if (pending_.size() >= kMaxPending) drop_silent(now);
  return pending_.size() < kMaxPending;
}

void JoinQueue::drop_silent(TimePoint now) {
  std::erase_if(pending_,
                [&](const auto& one) { return now - one.second.heard_at > kNewcomerTime; });
}

void JoinQueue::accept(ProcessId process, const std::string& host) {
  const auto known = pending_.find(process);
  if (known == pending_.end()) return;
  known->second.accepted = true;
  known->second.host = host;
}

void JoinQueue::fail(const std::string& host, TimePoint now) {
  std::erase_if(failures_, [&](const auto& one) { return now - one.second.until > kFailureTime; });
  Failures& failures = failures_[host];
  const Duration pause = kFirstHostPause * (1 << std::min(failures.count++, 5));
  failures.until = now + std::min(pause, kLongestHostPause);
}

// All conditions: checked, reached by all members, still sending requests, and no pause of its
// host.
bool JoinQueue::may_come(const PendingJoin& newcomer, TimePoint now) const {
  const auto failures = failures_.find(newcomer.host);
  return newcomer.accepted && newcomer.reached_at && now - newcomer.heard_at < kNewcomerTime &&
         (failures == failures_.end() || now >= failures->second.until);
}

std::vector<Newcomer> JoinQueue::waiting(TimePoint now) const {
  std::vector<Newcomer> out;
  for (const auto& [process, newcomer] : pending_)
    if (may_come(newcomer, now) && out.size() < kMostAtOnce)
      out.push_back({process, newcomer.entry});
  return out;
}

bool JoinQueue::is_due(TimePoint now) const {
  for (const auto& [process, newcomer] : pending_)
    if (may_come(newcomer, now) && now - *newcomer.reached_at > kForOthers) return true;
  return false;
}

void JoinQueue::admit_members(const std::vector<ProcessId>& members, TimePoint now) {
  for (const ProcessId process : members) pending_.erase(process);
  drop_silent(now);
  // The members have changed, so all of them must reach it again.
  for (auto& [process, newcomer] : pending_) newcomer.reached_at.reset();
}

Error JoinAcceptor::admit(std::string job, std::string note, uint32_t most, Milliseconds timeout) {
  {
    std::lock_guard lock(mutex_);
    queue_.open();
    job_ = std::move(job);
    note_ = std::move(note);
    most_ = most;
    timeout_ = timeout;
    if (!hosts()) return {};
  }
  return publish();
}

void JoinAcceptor::present(uint32_t generation, const ResolvedGroup& found,
                           std::shared_ptr<LazyStore> store) {
  {
    std::lock_guard lock(mutex_);
    present_ = {generation, found, std::move(store)};
    if (!hosts()) return;
  }
  context_.pool().run([self = shared_from_this()] {
    Error error = self->publish();
    for (int i = 0; error && i < kMoreTries; ++i) {
      std::this_thread::sleep_for(kTryAgain);
      error = self->publish();
    }
    if (error)
      log(LogLevel::kWarn,
          "group '" + self->options_.name + "': newcomers cannot find it: " + error.message());
  });
}

// Serialized, so that an older advertisement never replaces a newer one.
Error JoinAcceptor::publish() {
  std::lock_guard one_after_the_other(publishing_);
  const auto out = advertisement();
  if (!out.ok()) return out.error();
  std::shared_ptr<LazyStore> late;
  {
    std::lock_guard lock(mutex_);
    late = present_->store;
  }
  const auto store = late->get();
  return store.ok()
             ? store.value()->set(GroupAdvertisement::key(out.value().job), out.value().encode())
             : store.error();
}

// Builds the advertisement of the present generation. The context is used before mutex_ is locked,
// because it may block.
Result<GroupAdvertisement> JoinAcceptor::advertisement() const {
  const auto network = context_.network(options_.store_host);
  if (!network.ok()) return network.error();
  auto entry = context_.entry(network.value(), /*late=*/false);
  if (!entry.ok()) return entry.error();
  GroupAdvertisement out;
  out.first = std::move(entry.value());
  options_.state_in(out.first);
  out.group_id = group_id_;
  out.name = options_.name;
  std::lock_guard lock(mutex_);
  out.timeout = timeout_;
  out.job = job_;
  out.note = note_;
  out.most = most_;
  out.generation = present_->generation;
  out.first.costs = present_->found.costs;
  for (const ControlMember& one : present_->found.processes)
    out.members.push_back(GroupAdvertisement::Member::of(one));
  if (out.members.empty()) {  // this is the only member
    out.members.push_back(GroupAdvertisement::Member::of(out.first));
    book_->set_own(out.first.tcp_address);
  }
  return out;
}

bool JoinAcceptor::on_join_request(const Newcomer& newcomer, bool reached) {
  {
    std::lock_guard lock(mutex_);
    if (!queue_.is_open()) return false;
    const bool full = most_ > 0 && present_ && present_->found.membership.members.size() >= most_;
    if (!queue_.request_join(newcomer, reached, Clock::now()))
      return !full && queue_.is_due(Clock::now());
  }
  // On the pool, as it may take a while and this thread serves the consensus of all groups.
  if (const auto entry = entry_of(newcomer))
    context_.pool().run([self = shared_from_this(), entry = *entry] { self->look_at(entry); });
  return false;
}

std::vector<Newcomer> JoinAcceptor::waiting() const {
  std::unique_lock lock(mutex_);
  auto out = queue_.waiting(Clock::now());
  lock.unlock();
  std::erase_if(
      out, [this](const Newcomer& one) { return static_cast<bool>(context_.lost(one.process)); });
  return out;
}

void JoinAcceptor::look_at(const RankInfo& newcomer) {
  if (context_.lost(newcomer.context_id)) return;
  book_->add(GroupAdvertisement::Member::of(newcomer),
             !context_.prove_same_host(newcomer.context_id, newcomer.unix_name));
  const std::string host = host_of(newcomer.context_id);
  std::lock_guard lock(mutex_);
  queue_.accept(newcomer.context_id, host);
}

std::string JoinAcceptor::host_of(ProcessId process) const {
  const auto known = book_->find(process);
  return known ? without_port(known->address()) : "";
}

void JoinAcceptor::fail(ProcessId process) {
  const std::string host = host_of(process);
  std::lock_guard lock(mutex_);
  queue_.fail(host, Clock::now());
}

void JoinAcceptor::admit_members(const Decision& decision) {
  for (const Newcomer& one : decision.newcomers)
    // Without its local address, a member could mistake the death of another process of this host
    // for that of the last one.
    if (const auto entry = entry_of(one); entry && !book_->find(one.process))
      book_->add(GroupAdvertisement::Member::of(*entry),
                 !context_.prove_same_host(one.process, entry->unix_name));
  std::lock_guard lock(mutex_);
  queue_.admit_members(decision.members, Clock::now());
}

}  // namespace ringdist
