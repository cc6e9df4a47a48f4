#include "membership/membership_service.h"

#include <algorithm>
#include <future>
#include <utility>

#include "base/describe.h"
#include "base/error.h"
#include "base/log.h"
#include "control/control_history.h"
#include "os/event_loop.h"
#include "os/socket.h"

namespace ringdist {
namespace {

// Epoll keys: of the task queue's wake-up, and the first of the transport.
constexpr uint64_t kAssemblyWakeKey = 1;
constexpr uint64_t kFirstKey = 16;
constexpr Duration kTick = Milliseconds(500);      // longest sleep of the thread
constexpr Duration kLookAgain = Milliseconds(20);  // pause before connections are drained again
constexpr size_t kMostWithdrawn = 64;              // unregistered groups that are remembered
constexpr Duration kTellTime = std::chrono::seconds(1);  // limit of describe()
constexpr size_t kMostUndrained = 65536;                 // limit of undrained processes
constexpr Duration kLogEvery = std::chrono::seconds(1);  // pause between lines of log_dropped()

}  // namespace

MembershipService::MembershipService(ProcessId self, const PaxosTimeouts& timeouts,
                                     DrainConnections drain_connections,
                                     std::shared_ptr<const TlsKey> tls_key)
    : self_(self),
      timeouts_(timeouts),
      drain_connections_(std::move(drain_connections)),
      tls_key_(std::move(tls_key)) {}

void MembershipService::register_group(InitialMembers origin,
                                       std::shared_ptr<GroupConsensusDelegate> owner) {
  if (mark_.forked()) return;
  std::lock_guard lock(mutex_);
  const uint64_t nonce = origin.nonce;
  enrolled_.insert_or_assign(nonce, RegisteredGroup{std::move(origin), std::move(owner)});
}

// The reference to the owner ends after the lock is released, so that the owner's destructor does
// not run under it.
void MembershipService::unregister_group(uint64_t group_id, bool for_good) {
  if (mark_.forked()) return;
  std::shared_ptr<GroupConsensusDelegate> owner;
  {
    std::lock_guard lock(mutex_);
    const auto one = enrolled_.find(group_id);
    if (one == enrolled_.end()) return;
    owner = std::move(one->second.owner);
    enrolled_.erase(one);
    if (for_good) left_.insert(group_id);
    withdrawn_.emplace_back(group_id, owner->addresses());
    if (withdrawn_.size() > kMostWithdrawn) withdrawn_.pop_front();
  }
  post([this, group_id](TimePoint) { groups_.erase(group_id); });
}

// The queue opens last, so a task is accepted only if there is a thread for it.
Error MembershipService::start() {
  if (thread_.joinable() || stopping_) return {};
  auto wake = EventFd::create();
  if (!wake.ok()) return wake.error();
  auto epoll = Epoll::create();
  if (!epoll.ok()) return epoll.error();
  if (Error error = epoll.value().add(wake.value().get(), EPOLLIN, kAssemblyWakeKey)) return error;
  epoll_ = std::make_unique<Epoll>(std::move(epoll.value()));
  transport_ = std::make_unique<MembershipTransport>(
      self_, *epoll_, kFirstKey, static_cast<MembershipTransport::Delegate&>(*this), tls_key_);
  try {
    thread_ = thread_without_signals("ringdist-member", [this] { run(); });
  } catch (...) {
    return current_exception_error();
  }
  tasks_->open(std::move(wake.value()));
  return {};
}

Error MembershipService::begin(uint64_t group_id, uint32_t generation) {
  if (mark_.forked())
    return {ErrorKind::kAborted, "a process forked from one that uses ringdist cannot use it"};
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return {ErrorKind::kAborted, "this process has shut ringdist down"};
    if (!enrolled_.contains(group_id))
      return {ErrorKind::kInvalidArgument, "the group was destroyed"};
    if (Error error = start()) return error.prefixed("membership: ");
  }
  post([this, group_id, generation](TimePoint now) {
    if (GroupConsensus* one = find(group_id)) one->begin_after(generation, now);
  });
  return {};
}

bool MembershipService::admits(const MessageOrigin& from, uint64_t group_id) {
  const auto one = enrolled_.find(group_id);
  if (one == enrolled_.end()) return false;
  const auto known = one->second.owner->address_of(from.process);
  if (!known) return one->second.owner->accepts_joins();
  if (may_have_ip(known->tcp_address, from.ip)) return true;
  log_dropped(from, known);
  return false;
}

// The set is bounded, because other processes of this host can name any process. Once it is full,
// no death is a proof.
void MembershipService::distrust_death(ProcessId process) {
  if (undrained_.size() < kMostUndrained) undrained_.insert(process);
}

// Only a process with recorded addresses is worth a warning. Others may belong to a decision that
// is on its way to this process.
void MembershipService::log_dropped(const MessageOrigin& from,
                                    const std::optional<PeerAddress>& known) {
  const TimePoint now = Clock::now();
  if (now - dropped_at_ < kLogEvery) return;
  dropped_at_ = now;
  const bool tcp = from.kind == LinkKind::kTcp;
  log(known ? LogLevel::kWarn : LogLevel::kDebug,
      "membership: dropped a message from " + (tcp ? from.ip : "pid " + std::to_string(from.pid)) +
          " in the name of process " + format_id(from.process) + ", which " +
          (known ? "listens at " + (tcp ? known->tcp_address : known->unix_name)
                 : "does not belong to the group"));
}

void MembershipService::adopt(FramedSocket stream, const ControlHello& hello, LinkKind kind) {
  if (mark_.forked()) return;
  const auto from = MessageOrigin::of(stream.fd(), hello.from, kind);
  {
    std::lock_guard lock(mutex_);
    if (kind == LinkKind::kTcp && !admits(from, hello.nonce)) return;
    if (start()) {
      distrust_death(hello.from);
      return;
    }
  }
  // A std::function must be copyable, but a socket is not.
  auto held = std::make_shared<FramedSocket>(std::move(stream));
  post([this, held, from](TimePoint now) {
    if (transport_->adopt(std::move(*held), from, now)) return;
    std::lock_guard lock(mutex_);
    distrust_death(from.process);
  });
}

void MembershipService::give_up(ProcessId process) {
  if (mark_.forked()) return;
  {
    std::lock_guard lock(mutex_);
    if (process != self_) given_up_.insert(process);
  }
  post([this, process](TimePoint now) {
    for (auto& [nonce, consensus] : groups_) consensus->give_up(process, now);
  });
}

std::string MembershipService::describe(uint64_t group_id) {
  if (mark_.forked()) return "";
  auto said = std::make_shared<std::promise<std::string>>();
  auto text = said->get_future();
  const bool posted = post([this, group_id, said](TimePoint now) {
    const auto one = groups_.find(group_id);
    said->set_value(one == groups_.end() ? "" : one->second->describe(now));
  });
  said.reset();
  if (!posted || text.wait_for(kTellTime) != std::future_status::ready) return "";
  try {
    return text.get();
  } catch (const std::future_error&) {
    return "";
  }
}

// close() wakes the thread, so `stopping_` is set before.
void MembershipService::stop() {
  if (mark_.forked()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!thread_.joinable()) return;
    tasks_->close();
  }
  thread_.join();
  groups_.clear();
  transport_.reset();
}

// ---- The membership thread

template <typename Body>
void MembershipService::contain(const Body& body) {
  try {
    body();
  } catch (...) {
    log(LogLevel::kWarn, "membership: " + current_exception_error().message());
  }
}

void MembershipService::run() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    contain([this] { turn(); });
  }
}

Duration MembershipService::sleep() const {
  const TimePoint now = Clock::now();
  TimePoint until = now + kTick;
  for (const auto& [nonce, consensus] : groups_)
    if (const auto at = consensus->next()) until = std::min(until, *at);
  if (const auto at = transport_->next()) until = std::min(until, *at);
  return std::max(until, now) - now;
}

void MembershipService::turn() {
  const auto events = epoll_->wait(sleep());
  const TimePoint now = Clock::now();
  for (const Epoll::Event& event : events)
    if (event.key != kAssemblyWakeKey) transport_->on_event(event.key, now);
  for (const TaskQueue::Task& task : tasks_->take()) contain([&] { task(Clock::now()); });
  for (auto& [nonce, consensus] : groups_) consensus->tick(Clock::now());
  transport_->tick(Clock::now());
}

GroupConsensus* MembershipService::find(uint64_t nonce) {
  if (const auto known = groups_.find(nonce); known != groups_.end()) return known->second.get();
  std::optional<RegisteredGroup> enrolled;
  std::set<ProcessId> given_up;
  {
    std::lock_guard lock(mutex_);
    if (const auto one = enrolled_.find(nonce); one != enrolled_.end()) enrolled = one->second;
    given_up = given_up_;
  }
  if (!enrolled) return nullptr;
  // The queue may outlive this object: a store may answer late, and then posting fails.
  const auto later = [this, tasks = tasks_,
                      nonce](std::function<void(GroupConsensus&, TimePoint)> task) {
    tasks->post([this, nonce, task = std::move(task)](TimePoint now) {
      if (const auto one = groups_.find(nonce); one != groups_.end()) task(*one->second, now);
    });
  };
  auto& consensus = groups_[nonce];
  consensus = std::make_unique<GroupConsensus>(self_, enrolled->origin, timeouts_, *transport_,
                                               std::move(enrolled->owner), later);
  const TimePoint now = Clock::now();
  // Earlier reports count for the new consensus, too.
  for (const ProcessId process : given_up) consensus->give_up(process, now);
  for (const ProcessId process : dead_) consensus->on_death(process, now);
  return consensus.get();
}

// A connection carries messages of several groups, so each message is checked.
void MembershipService::on_message(const MessageOrigin& from, ConstBytes message) {
  using Kind = MembershipMessage::Kind;
  const auto read = MembershipMessage::decode(message);
  if (!read) return;
  std::optional<PeerAddress> known;
  bool is_registered = false;
  bool may_join = false;
  {
    std::lock_guard lock(mutex_);
    if (const auto one = enrolled_.find(read->group_id); one != enrolled_.end()) {
      is_registered = true;
      known = one->second.owner->address_of(from.process);
      may_join = read->kind == Kind::kJoinRequest && one->second.owner->accepts_joins();
    }
  }
  if (!is_registered) {
    if (read->kind == Kind::kAgreement) send_withdrawn(read->group_id, from.process);
    return;
  }
  if (known ? !is_sender(from, *known) : !may_join) {
    std::lock_guard lock(mutex_);
    // The sender may be a newcomer of a decision that is on its way to this process.
    if (!known && from.kind == LinkKind::kLocal && read->kind == Kind::kAgreement)
      distrust_death(from.process);
    return log_dropped(from, known);
  }
  if (GroupConsensus* one = find(read->group_id)) one->on_message(from, *read, Clock::now());
}

// Inside the host the pid of the process that listens at the name is compared. Where nobody listens
// any more, it is the pid in the name, which is another number in another pid namespace. A message
// that is dropped then may be one of the process, so its death proves nothing.
bool MembershipService::is_sender(const MessageOrigin& from, const PeerAddress& known) {
  if (from.kind == LinkKind::kTcp) return may_have_ip(known.tcp_address, from.ip);
  if (from.pid == 0) return true;
  auto listener = listeners_.find(from.process);
  if (listener == listeners_.end()) {
    const ConnectAttempt attempt = connect_unix(known.unix_name);
    const auto who = peer_credentials(attempt.fd);
    if (attempt.failure || !who.ok()) {
      if (known.unix_name.starts_with("@ringdist-" + std::to_string(from.pid) + "-")) return true;
      std::lock_guard lock(mutex_);
      distrust_death(from.process);
      return false;
    }
    listener = listeners_.emplace(from.process, who.value().pid).first;
  }
  return listener->second == 0 || listener->second == from.pid;
}

void MembershipService::send_withdrawn(uint64_t group_id, ProcessId to) {
  std::optional<PeerAddress> known;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [nonce, processes] : withdrawn_)
      if (const auto one = processes.find(to); nonce == group_id && one != processes.end())
        known = one->second;
  }
  const auto message =
      MembershipMessage{group_id, MembershipMessage::Kind::kWithdrawn, {}}.encode();
  if (known) transport_->send(*known, group_id, message, /*certain=*/false, Clock::now());
}

// The process counts as dead only after all messages that it sent have been read. Connections that
// it had dialed may still wait in the control plane, so these are drained first.
void MembershipService::on_deserted(ProcessId process) {
  drain_connections_([this, tasks = tasks_, process](bool all) {
    tasks->post([this, process, all](TimePoint) { look_again(process, all); });
  });
}

void MembershipService::look_again(ProcessId process, bool all_taken_in) {
  if (!all_taken_in) {
    std::this_thread::sleep_for(kLookAgain);
    return on_deserted(process);
  }
  try {
    transport_->take_in(process, Clock::now());
    std::lock_guard lock(mutex_);
    if (undrained_.contains(process) || undrained_.size() >= kMostUndrained) return;
    dead_.insert(process);
  } catch (...) {
    std::this_thread::sleep_for(kLookAgain);
    on_deserted(process);
    throw;
  }
  for (auto& [nonce, consensus] : groups_)
    contain([&, one = consensus.get()] { one->on_death(process, Clock::now()); });
}

}  // namespace ringdist
