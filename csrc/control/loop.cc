#include "control/loop.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/closed_by_peer.h"
#include "base/log.h"

namespace ringdist {
namespace {

constexpr uint64_t kWakeKey = 1;
constexpr uint64_t kSignalKey = 2;
constexpr Duration kUnsettledTick = Milliseconds(50);
constexpr Duration kLeavingTick = Milliseconds(5);
constexpr Duration kGoodbyeTime = Milliseconds(200);
constexpr auto kHandOverTime = std::chrono::seconds(1);
constexpr size_t kMaxFlood = kMaxFrameBody - 64;  // the record's own fields come with it

Error stopped() { return Error(ErrorKind::kAborted, "the control plane has been stopped"); }

}  // namespace

ControlLoop::ControlLoop(uint64_t id, const Config& config, ControlEvents& events, Epoll epoll,
                         EventFd wake, EventFd signalled)
    : id_(id),
      peer_timeout_(
          std::chrono::duration_cast<Duration>(std::chrono::duration<double>(config.peer_timeout))),
      events_(events),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      signalled_(std::move(signalled)),
      sockets_(id, epoll_, *this) {}

Result<std::unique_ptr<ControlLoop>> ControlLoop::create(uint64_t context_id, const Config& config,
                                                         const std::string& local_ip,
                                                         ControlEvents& events) {
  auto epoll = Epoll::create();
  if (!epoll.ok()) return epoll.error();
  auto wake = EventFd::create();
  if (!wake.ok()) return wake.error();
  auto signalled = EventFd::create();
  if (!signalled.ok()) return signalled.error();
  std::unique_ptr<ControlLoop> loop(
      new ControlLoop(context_id, config, events, std::move(epoll.value()), std::move(wake.value()),
                      std::move(signalled.value())));
  if (Error e = loop->open(local_ip)) return e.prefixed("control plane: ");
  return loop;
}

ControlLoop::~ControlLoop() { stop(); }

Error ControlLoop::open(const std::string& local_ip) {
  std::string name = "@ringdist-" + std::to_string(getpid()) + "-" + format_id(id_);
  if (Error e = sockets_.listen(name, local_ip)) return e;
  if (Error e = epoll_.add(wake_.get(), EPOLLIN, kWakeKey)) return e;
  if (Error e = epoll_.add(signalled_.get(), EPOLLIN, kSignalKey)) return e;
  signal_watch_ = SignalWatch::on_sigusr1(signalled_);
  now_ = Clock::now();
  // Signals are for the program's own threads: a handler of theirs must not run here.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "ringdist-ctl");
  return {};
}

void ControlLoop::run() {
  while (!stopping_.load(std::memory_order_acquire)) turn();
  finish();
}

void ControlLoop::turn() {
  Duration planned = std::max<Duration>(next_tick_ - now_, Duration(0));
  if (next_tick_ == TimePoint()) planned = Duration(0);
  auto events = epoll_.wait(planned);
  TimePoint now = Clock::now();
  forgive_own_pause(now, planned);
  now_ = now;
  for (const Epoll::Event& event : events) handle(event);
  run_commands();
  if (now_ >= next_tick_) {
    next_tick_ = now_ + kControlHeartbeat;  // before the work, which may ask to hurry
    sockets_.tick(now_);
    if (!silent_) upkeep();
    if (goodbye_) say_goodbye();
    Duration soon = goodbye_ ? kLeavingTick : kUnsettledTick;
    if (goodbye_ || unsettled()) next_tick_ = std::min(next_tick_, now_ + soon);
  }
  settle();
  sockets_.reap(now_);
}

void ControlLoop::handle(const Epoll::Event& event) {
  if (event.key == kWakeKey) {
    wake_.drain();
  } else if (event.key == kSignalKey) {
    if (signalled_.drain()) report_to_stderr();
  } else if (auto exit = exits_.find(event.key); exit != exits_.end()) {
    on_exit(exit->second);
  } else {
    sockets_.handle(event.key, event.events, now_);
  }
}

bool ControlLoop::post(std::function<void()> command) {
  {
    std::lock_guard lock(mutex_);
    if (finished_) return false;
    commands_.push_back(std::move(command));
  }
  wake_.signal();
  return true;
}

void ControlLoop::run_commands() {
  std::vector<std::function<void()>> commands;
  {
    std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (auto& command : commands) command();
}

// Runs `begin` on the control thread and waits for the request's answer.
Error ControlLoop::ask(Request request, std::function<void()> begin) {
  if (std::this_thread::get_id() == thread_.get_id())
    return Error(ErrorKind::kInvalidArgument, "a blocking call on the control thread");
  request.answer = std::make_shared<std::promise<Error>>();
  auto answer = request.answer->get_future();
  bool posted = post([this, request, begin = std::move(begin)] {
    if (silent_) {
      request.answer->set_value(stopped());
      return;
    }
    begin();
    requests_.push_back(request);
    hurry();
  });
  return posted ? answer.get() : stopped();
}

Error ControlLoop::prove(uint64_t peer, std::string unix_name, TimePoint deadline) {
  const Patience patience(deadline);
  return ask({true, peer, &patience, nullptr}, [this, peer, name = std::move(unix_name)] {
    ControlPeer& p = peers_[peer];
    p.proven = true;
    p.unix_name = name;
    p.line(LinkKind::kLocal).refusals = 0;
    p.line(LinkKind::kLocal).rejection.clear();
  });
}

Error ControlLoop::connect(uint64_t nonce, int my_rank, std::vector<ControlMember> members,
                           const Patience& patience) {
  return ask({false, nonce, &patience, nullptr}, [this, nonce, my_rank, members, &patience] {
    auto found = groups_.find(nonce);
    if (found == groups_.end())
      found = groups_.emplace(nonce, Group(ControlRoster(id_, my_rank, members))).first;
    found->second.ranks.insert(my_rank);
    for (auto& [id, peer] : peers_)
      for (auto& line : peer.lines)
        if (!line.reached) line = ControlPeer::Line();  // earlier failures are no news
    sockets_.readmit(now_);
    // What came before we knew whom else to tell.
    if (const auto known = formed_.find(nonce); known != formed_.end())
      tell_formed(nonce, found->second.roster, {known->second.begin(), known->second.end()},
                  nullptr);
    if (patience.cancelled) leave_group(nonce, my_rank);  // it disconnected before
  });
}

void ControlLoop::disconnect(uint64_t nonce, int rank) {
  auto done = std::make_shared<std::promise<void>>();
  auto ran = done->get_future();
  const bool posted = post([this, nonce, rank, done] {
    leave_group(nonce, rank);
    done->set_value();
  });
  if (posted && std::this_thread::get_id() != thread_.get_id()) ran.wait_for(kHandOverTime);
}

void ControlLoop::leave_group(uint64_t nonce, int rank) {
  auto found = groups_.find(nonce);
  if (found == groups_.end() || !found->second.ranks.erase(rank) || !found->second.left()) return;
  learn_formed(nonce, {id_}, nullptr);  // nobody need wait for us
  for (const auto& [id, member] : found->second.roster.processes())
    if (auto peer = peers_.find(id); peer != peers_.end()) peer->second.proven = false;
  found->second.left_at = now_;
  hurry();
}

void ControlLoop::flood(std::vector<std::byte> payload) {
  if (payload.size() > kMaxFlood) {
    log(LogLevel::kError, "a notice of " + std::to_string(payload.size()) + " bytes was not sent");
    return;
  }
  post([this, payload = std::move(payload)] {
    if (silent_) return;
    FloodRecord record{id_, sequence_++, payload};
    ledger_.record_flood(record, now_);
    sockets_.send_to_all(record.frame());
  });
}

void ControlLoop::leave(bool process_ends) {
  auto done = std::make_shared<std::promise<Error>>();
  auto answer = done->get_future();
  bool posted = post([this, done, process_ends] {
    if (silent_) {
      done->set_value({});
      return;
    }
    silent_ = true;
    process_ends_ = process_ends;
    goodbye_ = done;
    goodbye_until_ = now_ + kGoodbyeTime;
    sockets_.stop_listening();
    sockets_.send_to_all(process_ends_ ? make_frame(FrameType::kExits)
                                       : Fate{id_, ""}.frame(FrameType::kLeft));
    sockets_.for_each([this](ControlConnection& c) {
      if (!c.open()) sockets_.close(c);
    });
    for (const Request& request : requests_) request.answer->set_value(stopped());
    requests_.clear();
    hurry();
  });
  if (posted) [[maybe_unused]]
    Error none = answer.get();
}

// Waits for the others to close: closing first could discard a goodbye that is still on its way.
// When the process ends they answer instead, and see it end by the connection's.
void ControlLoop::say_goodbye() {
  bool waiting = false;
  sockets_.for_each([&](ControlConnection& c) {
    if (process_ends_) {
      waiting |= !goodbye_seen(c);
      return;
    }
    waiting = true;
    if (!c.stream.has_output()) c.stream.end_output();
  });
  if (waiting && now_ < goodbye_until_) return;
  if (!process_ends_) sockets_.for_each([this](ControlConnection& c) { sockets_.close(c); });
  goodbye_->set_value({});
  goodbye_.reset();
}

// Who exits as well has nothing to wait for.
bool ControlLoop::goodbye_seen(const ControlConnection& connection) {
  return connection.exit_seen || exiting(connection.peer) || !connection.open();
}

void ControlLoop::stop() {
  std::lock_guard lock(join_mutex_);
  stopping_.store(true, std::memory_order_release);
  wake_.signal();
  if (thread_.joinable()) thread_.join();
  signal_watch_.reset();
}

// The thread's last act: whoever waits gets an answer.
void ControlLoop::finish() {
  std::vector<std::function<void()>> commands;
  {
    std::lock_guard lock(mutex_);
    finished_ = true;
    commands.swap(commands_);
  }
  silent_ = true;
  for (auto& command : commands) command();
  for (const Request& request : requests_) request.answer->set_value(stopped());
  if (goodbye_) goodbye_->set_value({});
  requests_.clear();
  sockets_.stop_listening();
  if (!process_ends_) sockets_.for_each([this](ControlConnection& c) { sockets_.close(c); });
  sockets_.reap(now_);
}

void ControlLoop::settle() {
  std::erase_if(requests_, [this](const Request& request) {
    auto answer = answer_to(request);
    if (answer && *answer && request.is_proof) peers_[request.id].proven = false;
    if (answer) request.answer->set_value(*answer);
    return answer.has_value();
  });
}

std::optional<Error> ControlLoop::answer_to(const Request& request) {
  return request.is_proof ? proof_answer(request) : group_answer(request);
}

std::optional<Error> ControlLoop::proof_answer(const Request& request) {
  auto* link = sockets_.find(request.id, LinkKind::kLocal);
  if (link && link->open()) return Error();
  if (gone(request.id)) return Error(ErrorKind::kPeerLost, name_of(request.id) + " is gone");
  const ControlPeer::Line& line = peers_[request.id].line(LinkKind::kLocal);
  std::string who = name_of(request.id);
  if (!line.rejection.empty())
    return Error(ErrorKind::kPeerLost, who + " refused: " + line.rejection);
  if (line.refusals > 0)
    return Error(ErrorKind::kPeerLost, who + " does not share this host: " + line.failure);
  if (!request.patience->over(now_)) return std::nullopt;
  return Error(ErrorKind::kTimeout, who + " did not answer on its local control socket" +
                                        (line.failure.empty() ? "" : ": " + line.failure));
}

std::optional<Error> ControlLoop::group_answer(const Request& request) {
  auto found = groups_.find(request.id);
  if (found == groups_.end() || found->second.left() || request.patience->cancelled)
    return Error(ErrorKind::kAborted, "the group was destroyed while it connected");
  Group& group = found->second;
  // Of who has left, or dies later, the engine tells, after what it had sent.
  for (const auto& [id, member] : group.roster.processes()) {
    const auto why = ledger_.lost(id);
    if (!why || formed(request.id, id)) continue;
    return Error(ErrorKind::kPeerLost, "rank " + std::to_string(member.rank) + " (" +
                                           describe_process(member.pid, member.host_name) +
                                           ") is lost: " + std::string(kClosedByPeer) + *why)
        .blame(member.rank);
  }
  bool expired = request.patience->over(now_);
  bool complete = true;
  auto check = [&](uint64_t peer, LinkKind kind) -> std::optional<Error> {
    auto* link = sockets_.find(peer, kind);
    if ((link && link->reached()) || gone(peer)) return std::nullopt;
    complete = false;
    return missing_peer(group, peer, kind, expired);
  };
  for (uint64_t peer : group.roster.local_peers())
    if (auto error = check(peer, LinkKind::kLocal)) return error;
  auto is_gone = [this](uint64_t id) { return gone(id); };
  for (int host : group.roster.neighbours())
    for (uint64_t peer : group.roster.links_to(host, is_gone))
      if (auto error = check(peer, LinkKind::kTcp)) return error;
  if (!complete) return std::nullopt;
  if (!group.connected) {
    group.judged_since = now_;
    group.connected = true;
    learn_formed(request.id, {id_}, nullptr);
  }
  return formed_answer(group, request);
}

// The error for a peer that is not connected yet, if it is time for one.
std::optional<Error> ControlLoop::missing_peer(Group& group, uint64_t peer, LinkKind kind,
                                               bool expired) {
  const ControlMember& member = group.roster.member(peer);
  const ControlPeer::Line& line = peers_[peer].line(kind);
  bool local = kind == LinkKind::kLocal;
  bool refused = !line.rejection.empty() || (local && line.deserted());
  if (!refused && !expired) return std::nullopt;
  const std::string who = "rank " + std::to_string(member.rank) + " (" +
                          describe_process(member.pid, member.host_name) + ")";
  const std::string& address = local ? member.unix_name : member.tcp_address;
  if (line.rejection.empty() && refused)
    return Error(ErrorKind::kPeerLost, who + " is lost: " + std::string(kClosedByPeer) +
                                           "nothing listens on its control socket " + address +
                                           ": its process died or exited")
        .blame(member.rank);
  std::string seen = !line.rejection.empty() ? line.rejection : line.failure;
  std::string text = who + " cannot be reached on its control socket " + address + ": " +
                     (seen.empty() ? "it did not connect in time" : seen);
  return Error(refused ? ErrorKind::kPeerLost : ErrorKind::kTimeout, text).blame(member.rank);
}

}  // namespace ringdist
