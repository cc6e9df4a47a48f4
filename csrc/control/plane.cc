#include "control/plane.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/thrown.h"
#include "control/report.h"

namespace ringdist {
namespace {

using Verdict = ControlSockets::Verdict;

constexpr Duration kUnsettledTick = Milliseconds(50);
constexpr Duration kLeavingTick = Milliseconds(5);

}  // namespace

Error ControlPlane::stopped() {
  return Error(ErrorKind::kAborted, "the control plane has been stopped");
}

ControlPlane::ControlPlane(uint64_t id, const Config& config, ControlEvents& events,
                           const Epoll& epoll)
    : id_(id),
      events_(events),
      sockets_(id, epoll, *this),
      processes_(epoll),
      gossip_(id, sockets_, ledger_, arrivals_, groups_, events),
      dialer_(processes_, groups_, ledger_, sockets_),
      judge_(
          std::chrono::duration_cast<Duration>(std::chrono::duration<double>(config.peer_timeout)),
          processes_, groups_, ledger_, sockets_, dialer_, *this),
      answers_(processes_, ledger_, arrivals_, sockets_) {}

Error ControlPlane::listen(const std::string& local_ip) {
  return sockets_.listen("@ringdist-" + std::to_string(getpid()) + "-" + format_id(id_), local_ip);
}

Duration ControlPlane::next_sleep() const {
  if (next_tick_ == TimePoint()) return Duration(0);
  return std::max<Duration>(next_tick_ - now_, Duration(0));
}

void ControlPlane::begin_turn(TimePoint now) {
  judge_.forgive_own_pause(now - now_ - next_sleep(), now);
  now_ = now;
}

void ControlPlane::on_event(const Epoll::Event& event) {
  if (const auto ended = processes_.ended(event.key)) return on_exit(*ended);
  sockets_.handle(event.key, event.events, now_);
}

void ControlPlane::end_turn() {
  if (now_ >= next_tick_) {
    next_tick_ = now_ + kControlHeartbeat;  // before the work, which may ask to hurry
    sockets_.tick(now_);
    if (goodbye_.here()) upkeep();
    if (goodbye_.saying()) say_goodbye();
    const Duration soon = goodbye_.saying() ? kLeavingTick : kUnsettledTick;
    if (goodbye_.saying() || unsettled()) next_tick_ = std::min(next_tick_, now_ + soon);
  }
  settle_requests();
  sockets_.reap(now_);
}

void ControlPlane::accept(const Request& request) {
  requests_.push_back(request);
  hurry();
}

void ControlPlane::prove(const Request& request, const std::string& unix_name) {
  if (!goodbye_.here()) return request.answer->set_value(stopped());
  ControlPeer& peer = processes_[request.id];
  peer.proven = true;
  peer.unix_name = unix_name;
  peer.line(LinkKind::kLocal).refusals = 0;
  peer.line(LinkKind::kLocal).rejection.clear();
  accept(request);
}

void ControlPlane::connect(const Request& request, int rank,
                           const std::vector<ControlMember>& members) {
  if (!goodbye_.here()) return request.answer->set_value(stopped());
  groups_.join(request.id, id_, rank, members);
  processes_.forget_failures();
  sockets_.readmit(now_);
  gossip_.tell_members(request.id);
  if (request.patience->cancelled) disconnect(request.id, rank);  // it disconnected before
  accept(request);
}

void ControlPlane::disconnect(uint64_t nonce, int rank) {
  if (!groups_.leave(nonce, rank, now_)) return;
  gossip_.learn_formed(nonce, {id_}, nullptr);  // nobody need wait for us
  for (const auto& [id, member] : groups_.find(nonce)->roster.processes())
    if (ControlPeer* peer = processes_.find(id)) peer->proven = false;
  hurry();
}

void ControlPlane::flood(const std::vector<std::byte>& payload) {
  if (goodbye_.here()) gossip_.flood(payload, now_);
}

void ControlPlane::leave(bool process_ends, std::shared_ptr<std::promise<Error>> answer) {
  if (!goodbye_.here()) return answer->set_value({});
  goodbye_.begin(process_ends, std::move(answer), now_);
  sockets_.stop_listening();
  sockets_.send_to_all(process_ends ? make_frame(FrameType::kExits)
                                    : Fate{id_, ""}.frame(FrameType::kLeft));
  sockets_.for_each([this](ControlConnection& c) {
    if (!c.open()) sockets_.close(c);
  });
  refuse_requests();
  hurry();
}

// Waits for the others to close: closing first could discard a goodbye that is still on its way.
// When the process ends they answer instead, and see it end by the connection's; who exits as well
// has nothing to wait for.
void ControlPlane::say_goodbye() {
  bool waiting = false;
  sockets_.for_each([&](ControlConnection& c) {
    if (goodbye_.process_ends()) {
      waiting |= !c.exit_seen && !processes_.exiting(c.peer) && c.open();
      return;
    }
    waiting = true;
    if (!c.stream.has_output()) c.stream.end_output();
  });
  if (waiting && !goodbye_.over(now_)) return;
  if (!goodbye_.process_ends())
    sockets_.for_each([this](ControlConnection& c) { sockets_.close(c); });
  goodbye_.end();
}

void ControlPlane::end() {
  goodbye_.end();
  refuse_requests();
  sockets_.stop_listening();
  if (!goodbye_.process_ends())
    sockets_.for_each([this](ControlConnection& c) { sockets_.close(c); });
  sockets_.reap(now_);
}

void ControlPlane::refuse_requests() {
  for (const Request& request : std::exchange(requests_, {})) request.answer->set_value(stopped());
}

void ControlPlane::settle_requests() {
  for (size_t i = 0; i < requests_.size();) {
    const auto answer = answer_to(requests_[i]);
    if (!answer) {
      ++i;
      continue;
    }
    const Request request = std::move(requests_[i]);
    requests_.erase(requests_.begin() + static_cast<ptrdiff_t>(i));
    ControlPeer* peer = request.is_proof && *answer ? processes_.find(request.id) : nullptr;
    if (peer != nullptr) peer->proven = false;
    request.answer->set_value(*answer);
  }
}

// What is thrown is the answer.
std::optional<Error> ControlPlane::answer_to(const Request& request) {
  try {
    if (!request.is_proof) return group_answer(request);
    return answers_.proof(request.id, name_of(request.id), *request.patience, now_);
  } catch (...) {
    return thrown_error();
  }
}

std::optional<Error> ControlPlane::group_answer(const Request& request) {
  ControlGroup* group = groups_.find(request.id);
  if (group == nullptr || group->left() || request.patience->cancelled)
    return Error(ErrorKind::kAborted, "the group was destroyed while it connected");
  const auto linked = answers_.links(request.id, *group, *request.patience, now_);
  if (!linked || *linked) return linked;
  if (!group->connected) {
    group->connect(now_);
    gossip_.learn_formed(request.id, {id_}, nullptr);
  }
  return answers_.formed(request.id, *group, *request.patience, now_);
}

std::string ControlPlane::name_of(uint64_t id) const {
  return ringdist::name_of(id, groups_, processes_);
}

std::string ControlPlane::report() {
  std::string out = events_.dump();
  if (!out.empty() && out.back() != '\n') out += '\n';
  out += "control plane of context " + format_id(id_) + ", pid " + std::to_string(getpid()) + ", " +
         unix_name() + ", " + tcp_address() + "\n";
  return out + report_links(groups_, processes_, sockets_, judge_.suspect_after(), now_) +
         ledger_.describe();
}

void ControlPlane::upkeep() {
  for (const Request& request : requests_)
    if (request.is_proof) dialer_.want(request.id, LinkKind::kLocal, true, now_);
  forget_left();
  for (auto& [nonce, group] : groups_.all()) {
    dialer_.keep_linked(group, now_);
    if (!group.left()) judge_.judge_hosts(group, now_);
  }
  judge_.judge_processes(now_);
  settle_needs();
}

// A group that all ranks of this process have left stays until every member has heard so: one that
// has not linked yet would look for us until its time is over.
void ControlPlane::forget_left() {
  const auto heard = [this](uint64_t nonce, const ControlGroup& group) {
    return std::ranges::all_of(group.roster.processes(), [&](const auto& member) {
      return arrivals_.has(nonce, member.first) || ledger_.gone(member.first);
    });
  };
  for (const uint64_t nonce : groups_.forget_left(heard, now_)) arrivals_.forget(nonce);
}

// Tells peers which connections we need, and closes those that nobody does. The lower id closes;
// until then either side may change its mind.
void ControlPlane::settle_needs() {
  sockets_.for_each([this](ControlConnection& c) {
    if (!c.open()) return;
    bool need = judge_.needed(c.peer);
    if (need) c.was_needed = true;
    // One that a peer opened is its to give up: our group may not exist yet.
    if (!c.was_needed) need = c.peer_needs;
    if (need != c.needed) {
      c.needed = need;
      const std::byte value{need};
      sockets_.send(c, make_frame(FrameType::kNeed, ConstBytes{&value, 1}));
    }
    if (!c.needed && !c.peer_needs && id_ < c.peer) sockets_.close(c);
  });
  for (const uint64_t id : processes_.ids()) {
    const bool tried =
        std::ranges::any_of(kLinkKinds, [&](LinkKind kind) { return sockets_.tried(id, kind); });
    if (!tried && !judge_.needed(id)) processes_.forget(id);
  }
}

// Something waits that a regular tick would find too late.
bool ControlPlane::unsettled() const {
  if (!requests_.empty()) return true;
  return std::ranges::any_of(processes_.all(), [this](const auto& entry) {
    const auto& [id, peer] = entry;
    return std::ranges::any_of(kLinkKinds, [&](LinkKind kind) {
      return peer.line(kind).reached && !sockets_.reached(id, kind);
    });
  });
}

// A process of this host has ended. What it said before comes first: it may have said goodbye.
void ControlPlane::on_exit(uint64_t id) {
  if (auto* link = sockets_.find(id, LinkKind::kLocal)) sockets_.receive(*link, now_);
  if (ledger_.gone(id)) return processes_.forget(id);
  if (!goodbye_.here())
    drop(id);
  else if (processes_.exiting(id))
    learn_left(id);
  else
    learn_lost(id, "its process (" + name_of(id) + ") died");
}

void ControlPlane::learn_lost(uint64_t id, const std::string& cause,
                              const ControlConnection* from) {
  const std::string name = name_of(id);
  const Error error(ErrorKind::kPeerLost, cause);
  if (!gossip_.learn_lost(id, cause, from)) return;
  hurry();
  events_.on_process_lost(id, error);  // first: what the rest throws must not keep it from that
  if (id != id_) drop(id);
  log(LogLevel::kDebug, name + " is lost: " + cause);
  forget_old_fates();
}

void ControlPlane::learn_left(uint64_t id, const ControlConnection* from) {
  const std::string name = name_of(id);
  if (!gossip_.learn_left(id, from)) return;
  hurry();
  events_.on_process_left(id);
  drop(id);
  log(LogLevel::kDebug, name + " has left");
  forget_old_fates();
}

void ControlPlane::forget_old_fates() {
  ledger_.forget_old([this](uint64_t id) { return id == id_ || judge_.needed(id); });
}

void ControlPlane::drop(uint64_t id) {
  sockets_.for_each([&](ControlConnection& c) {
    if (c.peer == id) sockets_.close_after_output(c, now_);
  });
  processes_.forget(id);
}

ControlSockets::Admission ControlPlane::admit(const ControlConnection& connection,
                                              const Hello& hello) {
  if (hello.from == id_ || hello.to != id_)
    return {Verdict::kRefuse, "another process listens there now"};
  if (connection.kind == LinkKind::kLocal) {
    if (connection.uid != geteuid()) return {Verdict::kRefuse, "it runs as another user"};
  } else {
    const ControlGroup* group = groups_.find(hello.nonce);
    if (group == nullptr) return {Verdict::kHold, ""};
    // Not a word to somebody who cannot show that he belongs here.
    if (!group->roster.has(hello.from)) return {Verdict::kRefuse, ""};
  }
  if (ledger_.gone(hello.from))
    return {Verdict::kRefuse, "it gave this process up before: " +
                                  ledger_.lost(hello.from).value_or("this process had left")};
  return {Verdict::kAccept, ""};
}

void ControlPlane::on_reached(ControlConnection& connection) {
  processes_[connection.peer].line(connection.kind).connected(now_);
}

void ControlPlane::on_open(ControlConnection& connection) {
  on_reached(connection);
  const bool local = connection.kind == LinkKind::kLocal;
  if (local) processes_.watch_exit(connection.peer, connection.pid);
  log(LogLevel::kDebug, "control link to " + name_of(connection.peer) +
                            (local ? " is open, on this host" : " is open, over TCP"));
  gossip_.bring_up_to_date(connection, now_);
}

void ControlPlane::on_frame(ControlConnection& connection, const Frame& frame) {
  if (frame.type == FrameType::kExits) return on_exits(connection);
  if (frame.type == FrameType::kSeen) connection.exit_seen = true;
  if (!goodbye_.here()) return;
  if (frame.type == FrameType::kDumpRequest) return on_dump_request(connection);
  if (ControlPeer* peer = processes_.find(connection.peer))
    peer->line(connection.kind).heard = now_;
  switch (frame.type) {
    case FrameType::kLost:
      if (const auto fate = Fate::decode(frame.body))
        learn_lost(fate->context_id, fate->cause, &connection);
      return;
    case FrameType::kLeft:
      if (const auto fate = Fate::decode(frame.body)) learn_left(fate->context_id, &connection);
      return;
    case FrameType::kFlood:
      return gossip_.on_flood(connection, frame, now_);
    case FrameType::kFormed:
      return gossip_.on_formed(connection, frame);
    case FrameType::kNeed:
      connection.peer_needs = !frame.body.empty() && frame.body[0] != std::byte{0};
      if (!connection.peer_needs && !connection.needed) hurry();
      return;
    default:
      return;  // heartbeats, and what later versions may say
  }
}

void ControlPlane::on_exits(ControlConnection& connection) {
  processes_[connection.peer].exits_since = now_;
  sockets_.send(connection, make_frame(FrameType::kSeen));
}

void ControlPlane::on_dump_request(ControlConnection& connection) {
  if (connection.uid != geteuid() && connection.uid != 0) return sockets_.close(connection);
  sockets_.send(connection, make_frame(FrameType::kDump, report()));
  sockets_.close_after_output(connection, now_);
}

void ControlPlane::on_closed(const ControlConnection& connection, bool was_reached, int errno_value,
                             const std::string& reason) {
  ControlPeer* peer = processes_.find(connection.peer);
  if (!goodbye_.here() || peer == nullptr) return;
  // It kept the connection until its end. The kernel's word on a local process is as good, and
  // comes a moment later, when the parent of that process is told.
  if (was_reached && peer->exiting() && !peer->pidfd)
    return learn_left(connection.peer, &connection);
  ControlPeer::Line& line = peer->line(connection.kind);
  line.failed(errno_value, reason);
  if (!was_reached) return;
  // The other side may close what neither needs; otherwise find out at once what has happened.
  if (!connection.needed) line.reached = false;
  line.refusals = 0;
  line.retry_at = now_;
  hurry();
}

}  // namespace ringdist
