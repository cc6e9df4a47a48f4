#include "engine/membership/join_acceptor.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/describe.h"
#include "base/log.h"
#include "control/control_history.h"
#include "engine/op/message.h"
#include "os/random.h"
#include "os/socket.h"

namespace ringdist {
namespace {

constexpr Duration kNewcomerTime = Milliseconds(700);  // after which a silent newcomer is dropped
constexpr Duration kForOthers = Milliseconds(150);  // wait for newcomers that were started together
constexpr size_t kMaxPending = 1024;
constexpr size_t kMostOfSource = 16;  // unreached newcomers from one ip or local process
constexpr size_t kMostEntry = 4096;   // bytes of a newcomer's rank info
constexpr size_t kMostAtOnce = 128;   // a decision contains the infos of all its newcomers
constexpr Duration kFirstHostPause =
    std::chrono::seconds(2);  // for a host after its first failed join
constexpr Duration kLongestHostPause = std::chrono::minutes(1);
// After which a failed join is forgotten.
constexpr Duration kFailureTime = std::chrono::minutes(5);

// Attempts to write an advertisement after the first, and the pause between them.
constexpr int kMoreTries = 4;
constexpr Duration kTryAgain = Milliseconds(500);

// Returns true if a control plane of `process` listens at such a name, or if the name is empty. So
// nobody can make members dial the socket of another program.
bool is_control_name(const std::string& unix_name, ProcessId process) {
  if (unix_name.empty()) return true;
  const std::string begin = "@ringdist-";
  const std::string end = "-" + format_id(process);
  if (!unix_name.starts_with(begin) || !unix_name.ends_with(end)) return false;
  const size_t digits = unix_name.find_first_not_of("0123456789", begin.size());
  return digits > begin.size() && digits == unix_name.size() - end.size();
}

// Decodes a newcomer's rank info. Returns nothing if it is malformed, of another wire version or of
// another process.
std::optional<RankInfo> entry_of(const Newcomer& newcomer) {
  auto entry = RankInfo::decode(
      {reinterpret_cast<const std::byte*>(newcomer.entry.data()), newcomer.entry.size()},
      kWireVersion);
  // Info of another version has no more fields.
  const bool good = entry && entry->wire_version == kWireVersion &&
                    entry->context_id == newcomer.process &&
                    is_control_name(entry->unix_name, newcomer.process) &&
                    entry->tcp_address.find(':') != std::string::npos;
  return good ? entry : std::nullopt;
}

}  // namespace

bool JoinQueue::request_join(const Newcomer& newcomer, const std::string& source, uint64_t number,
                             TimePoint now) {
  const bool is_new = !pending_.contains(newcomer.process);
  if (is_new && (newcomer.entry.size() > kMostEntry || !make_room(source, now))) return false;
  PendingJoin& request = pending_[newcomer.process];
  if (is_new) {
    request.answer.number = random_id();
    request.source = source;
  }
  request.heard_at = now;
  request.answer.repeated |= number == request.answer.number;
  return is_new;
}

JoinAnswer JoinQueue::answer(ProcessId process) const {
  const auto known = pending_.find(process);
  return known == pending_.end() || !known->second.accepted ? JoinAnswer{} : known->second.answer;
}

// A newcomer that repeats its number can be reached, so its source does not invent it. If such
// newcomers counted, each member could keep other ones, and none would be vouched for by all.
bool JoinQueue::make_room(const std::string& source, TimePoint now) {
  const auto is_full = [&] {
    const auto of_source = std::ranges::count_if(pending_, [&](const auto& one) {
      return one.second.source == source && !one.second.answer.repeated;
    });
    return pending_.size() >= kMaxPending || static_cast<size_t>(of_source) >= kMostOfSource;
  };
  if (is_full()) drop_silent(now);
  return !is_full();
}

void JoinQueue::drop_silent(TimePoint now) {
  std::erase_if(pending_,
                [&](const auto& one) { return now - one.second.heard_at > kNewcomerTime; });
}

void JoinQueue::accept(const Newcomer& newcomer, const std::string& host) {
  const auto known = pending_.find(newcomer.process);
  if (known == pending_.end()) return;
  known->second.accepted = true;
  known->second.entry = newcomer.entry;
  known->second.host = host;
}

void JoinQueue::vouch(ProcessId process, ProcessId member, size_t members, TimePoint now) {
  const auto known = pending_.find(process);
  if (known == pending_.end()) return;
  PendingJoin& newcomer = known->second;
  newcomer.vouched_by.insert(member);
  if (newcomer.vouched_by.size() >= members && !newcomer.reached_at) newcomer.reached_at = now;
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
  for (auto& [process, newcomer] : pending_) {
    newcomer.vouched_by.clear();
    newcomer.reached_at.reset();
  }
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
  auto entry = context_.entry(network.value(), /*late=*/false, options_.config.transport);
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

JoinAnswer JoinAcceptor::on_join_request(const Newcomer& newcomer, const MessageOrigin& from,
                                         uint64_t number) {
  const bool local = from.kind == LinkKind::kLocal;
  const std::string source = local ? "pid " + std::to_string(from.pid) : from.ip;
  std::lock_guard lock(mutex_);
  if (!queue_.is_open()) return {};
  if (!queue_.request_join(newcomer, source, number, Clock::now()))
    return queue_.answer(newcomer.process);
  auto entry = entry_of(newcomer);
  if (!entry) return {};
  std::string& address = entry->tcp_address;
  if (!local) address = from.ip + address.substr(address.rfind(':'));
  // On the pool, as it may take a while and this thread serves the consensus of all groups.
  context_.pool().run([self = shared_from_this(), entry = std::move(*entry), local] {
    self->look_at(entry, local);
  });
  return {};
}

bool JoinAcceptor::on_vouched(ProcessId newcomer, ProcessId member, size_t members) {
  std::lock_guard lock(mutex_);
  const bool full = most_ > 0 && members >= most_;
  queue_.vouch(newcomer, member, members, Clock::now());
  return !full && queue_.is_due(Clock::now());
}

std::vector<Newcomer> JoinAcceptor::waiting() const {
  std::unique_lock lock(mutex_);
  auto out = queue_.waiting(Clock::now());
  lock.unlock();
  std::erase_if(
      out, [this](const Newcomer& one) { return static_cast<bool>(context_.lost(one.process)); });
  return out;
}

// A connection inside the host shows no TCP address. If the proof fails there, the next request
// starts another one.
void JoinAcceptor::look_at(const RankInfo& newcomer, bool local) {
  const ProcessId process = newcomer.context_id;
  if (context_.lost(process) || newcomer.options_hash != options_.config.options_hash()) return;
  const bool is_same_host = !context_.prove_same_host(process, newcomer.unix_name);
  if (local && !is_same_host) {
    std::lock_guard lock(mutex_);
    return queue_.remove(process);
  }
  book_->add(GroupAdvertisement::Member::of(newcomer), is_same_host);
  const std::string host = host_of(process);
  const auto entry = newcomer.encode();
  std::lock_guard lock(mutex_);
  queue_.accept({process, {reinterpret_cast<const char*>(entry.data()), entry.size()}}, host);
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
