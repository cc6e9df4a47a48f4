#include "control/control_plane.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/describe.h"
#include "base/log.h"
#include "control/control_report.h"
#include "os/socket.h"
#include "os/thread_usage.h"

namespace ringdist {
namespace {

using Action = ConnectionManager::AcceptAction;

// With the least peer timeout, 500 ms, a process is suspect after half of it.
static_assert(kControlHeartbeat < Milliseconds(250));

constexpr Duration kUnsettledTick = Milliseconds(50);  // tick interval while something waits
constexpr Duration kPause = Milliseconds(10);          // a turn that begins so late was held up
constexpr Duration kLeavingTick = Milliseconds(5);     // tick interval during the graceful shutdown
// The interval of local heartbeats grows by this much per connection.
constexpr Duration kHeartbeatPerLink = Milliseconds(7);
// A TCP connection breaks if sent data is not confirmed for this time, or for a quarter of the peer
// timeout if that is shorter.
constexpr Duration kTcpTimeout = std::chrono::seconds(3);
constexpr Duration kWarnEvery = std::chrono::seconds(1);  // interval of may_be()
constexpr size_t kMostPendingDepartures = 1024;           // a new connection reports as many

Duration timeout_of(const Config& config) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(config.peer_timeout));
}

}  // namespace

ControlPlane::ControlPlane(uint64_t id, const Config& config, ControlDelegate& events,
                           const Epoll& epoll, std::shared_ptr<const TlsKey> tls_key)
    : id_(id),
      ports_(config.ports()),
      events_(events),
      sockets_(id, epoll, *this, std::min<Duration>(timeout_of(config) / 4, kTcpTimeout), tls_key),
      processes_(epoll),
      gossip_(id, sockets_, history_, formation_barrier_, groups_, events, std::move(tls_key)),
      demand_(id, processes_, groups_, sockets_, sockets_),
      departures_(id, history_, groups_, processes_, demand_, gossip_, timer_, events),
      dialer_(processes_, groups_, history_, sockets_),
      failure_detector_(timeout_of(config), processes_, groups_, history_, formation_barrier_,
                        sockets_, demand_, dialer_, departures_),
      evaluator_(id, processes_, history_, formation_barrier_, sockets_),
      requests_(groups_, processes_, evaluator_, *this),
      snapshots_(id, sockets_, history_, groups_, processes_, events),
      shutdown_(id, processes_, sockets_) {}

Error ControlPlane::listen(const std::string& local_ip) {
  return sockets_.listen("@ringdist-" + std::to_string(getpid()) + "-" + format_id(id_), local_ip,
                         ports_);
}

void ControlPlane::begin_turn(TimePoint now) {
  sockets_.begin_turn(now);
  const Duration late = timer_.begin_turn(now);
  failure_detector_.discount_own_pause(late, now);
  if (late < kPause) return;
  const Duration before = std::exchange(run_delay_, run_delay_of_this_thread());
  paused_ += std::max(Duration(0), late - (run_delay_ - before));
}

void ControlPlane::on_event(const Epoll::Event& event) {
  if (const auto ended = processes_.ended(event.key))
    on_process_ended(*ended);
  else
    sockets_.handle(event.key, event.events);
}

void ControlPlane::end_turn() {
  if (timer_.due()) tick();
  requests_.answer_ready(now());
  sockets_.reap();
}

void ControlPlane::tick() {
  timer_.set(kControlHeartbeat);  // before the work, which may call hurry()
  sockets_.tick(local_heartbeat());
  if (shutdown_.here()) upkeep();
  if (shutdown_.is_sending()) {
    tell_of_ends();
    shutdown_.advance(now());
    timer_.at_most(kLeavingTick);
  }
  snapshots_.end_late(now());
  snapshots_.sample_calls(paused_, now());
  if (unsettled() || snapshots_.waits()) timer_.at_most(kUnsettledTick);
}

// With many links each gets fewer heartbeats. The kernel reports the end of a local process, so
// heartbeats only have to show that it does not stand still. The interval stays below the silence
// that makes a process suspect.
Duration ControlPlane::local_heartbeat() const {
  const Duration spread =
      std::max<Duration>(kControlHeartbeat, sockets_.count() * kHeartbeatPerLink);
  return std::min(spread, failure_detector_.suspect_after() * 7 / 8);
}

void ControlPlane::prove(const ControlRequest& request, const std::string& unix_name) {
  requests_.prove(request, unix_name);
  timer_.hurry();
}

void ControlPlane::connect(const ControlRequest& request, int rank,
                           const std::vector<ControlMember>& members) {
  requests_.connect(request, [&] {
    close_held(groups_.join(request.id, id_, rank, members).roster);
    // The group needs these processes, so a finished host proof need not keep their connections any
    // more.
    for (const ControlMember& member : members)
      if (ControlPeer* peer = processes_.find(member.context_id))
        peer->proven = requests_.proving(member.context_id);
    processes_.forget_failures();
    sockets_.readmit();
    gossip_.tell_members(request.id);
    learn_pending_departures();
    if (request.deadline->cancelled) disconnect(request.id, rank);  // it disconnected before
  });
  timer_.hurry();
}

void ControlPlane::disconnect(uint64_t nonce, int rank) {
  if (!groups_.leave(nonce, rank, now())) return;
  timer_.hurry();
  gossip_.learn_formed(nonce, {id_}, nullptr);  // members need not wait for this process
}

void ControlPlane::flood(const std::vector<std::byte>& payload) {
  if (shutdown_.here()) gossip_.flood(payload, now());
}

void ControlPlane::leave(bool process_ends, std::shared_ptr<std::promise<Error>> answer) {
  if (!shutdown_.here()) return answer->set_value({});
  shutdown_.begin(process_ends, std::move(answer), now());
  requests_.stop();
  for (auto& [nonce, group] : groups_.all()) dialer_.keep_linked(group, now(), /*ends=*/true);
  timer_.hurry();
}

void ControlPlane::end() {
  if (shutdown_.is_sending()) shutdown_.advance(now());
  shutdown_.end();
  requests_.stop();
  sockets_.reap();
}

void ControlPlane::abort(const std::string& cause) {
  if (shutdown_.here()) gossip_.pass_on_lost(id_, cause, nullptr);
  shutdown_.end();
  requests_.stop();
}

std::string ControlPlane::report() {
  std::string out = events_.dump();
  if (!out.empty() && out.back() != '\n') out += '\n';
  out += "control plane of context " + format_id(id_) + ", pid " + std::to_string(getpid()) + ", " +
         unix_name() + ", " + tcp_address() + "\n";
  return out +
         report_links(groups_, processes_, sockets_, failure_detector_.suspect_after(), now()) +
         history_.describe();
}

void ControlPlane::upkeep() {
  for (const uint64_t id : requests_.proofs()) dialer_.want(id, LinkKind::kLocal, true, now());
  keep_groups();
  failure_detector_.check_processes(now());
  demand_.update_connections();
}

void ControlPlane::keep_groups() {
  forget_left();
  for (auto& [nonce, group] : groups_.all()) {
    if (group.left() && !formation_barrier_.has(nonce, id_))
      gossip_.learn_formed(nonce, {id_}, nullptr);
    dialer_.keep_linked(group, now());
    if (!group.left()) failure_detector_.check_hosts(group, now());
    (void)gossip_.formed(nonce, group);
  }
}

// A group that all ranks of this process have left stays until every member has been notified. A
// member that has not linked yet would otherwise look for this process until its deadline.
void ControlPlane::forget_left() {
  const auto heard = [this](uint64_t nonce, const ControlGroup& group) {
    return std::ranges::all_of(group.roster.processes(), [&](const auto& member) {
      return formation_barrier_.has(nonce, member.first) || history_.departed(member.first);
    });
  };
  for (const uint64_t nonce : groups_.forget_left(heard, now())) formation_barrier_.forget(nonce);
}

bool ControlPlane::unsettled() const {
  if (!requests_.empty()) return true;
  // A joined link that is broken may mean a death, so it is checked soon.
  return std::ranges::any_of(processes_.all(), [this](const auto& entry) {
    const auto& [id, peer] = entry;
    return std::ranges::any_of(kLinkKinds, [&](LinkKind kind) {
      return peer.link(kind).joined() && !sockets_.reached(id, kind);
    });
  });
}

// Input that the process sent before its end comes first, since it may contain the announcement
// that it leaves.
void ControlPlane::on_process_ended(uint64_t id) {
  if (auto* link = sockets_.find(id, LinkKind::kLocal)) sockets_.receive(*link);
  if (history_.departed(id)) return processes_.forget(id);
  if (shutdown_.is_sending()) tell_of_ends();
  if (!shutdown_.here())
    demand_.drop(id);
  else if (processes_.exiting(id))
    departures_.learn_left(id);
  else
    departures_.learn_lost(id, "its process (" + name_of(id, groups_, processes_) + ") died");
}

ConnectionManager::AcceptDecision ControlPlane::admit(const ControlConnection& connection,
                                                      const ControlHello& hello) {
  // A process that cannot show that it belongs to a group of this one gets no explanation. Root may
  // connect inside the host, but only for dumps.
  const bool another_user = connection.kind == LinkKind::kLocal && connection.uid != geteuid();
  if (hello.from == id_ || hello.to != id_ || another_user) return {Action::kRefuse, ""};
  const ControlGroup* group = groups_.find(hello.nonce);
  if (group == nullptr) return {Action::kHold, ""};  // a later group, or a host proof
  const LinkTopology& roster = group->roster;
  if (!roster.has(hello.from) || !may_be(connection, roster.member(hello.from)))
    return {Action::kRefuse, ""};
  if (history_.departed(hello.from))
    return {Action::kRefuse, "it gave this process up before: " +
                                 history_.lost(hello.from).value_or("this process had left")};
  return {Action::kAccept, ""};
}

// Inside the host the pid is compared. Over TCP it is the ip at which the member listens, because
// it dials from there.
bool ControlPlane::may_be(const ControlConnection& connection, const ControlMember& member) {
  std::string seen = "pid " + std::to_string(connection.pid);
  if (connection.kind == LinkKind::kLocal) {
    if (is_listener(connection.pid, member.unix_name)) return true;
  } else {
    seen = without_port(remote_address(connection.stream.fd()));
    if (may_have_ip(member.tcp_address, seen)) return true;
  }
  if (now() - warned_at_ < kWarnEvery) return false;
  warned_at_ = now();
  log(LogLevel::kWarn,
      "control plane: refused a connection from " + seen + " in the name of " +
          name_of(member.context_id, groups_, processes_) + ", which listens at " +
          (connection.kind == LinkKind::kLocal ? member.unix_name : member.tcp_address));
  return false;
}

void ControlPlane::close_held(const LinkTopology& roster) {
  sockets_.for_each([&](ControlConnection& connection) {
    if (!connection.dialed || connection.open() || !roster.has(connection.peer)) return;
    const ControlGroup* named = groups_.find(connection.hello.nonce);
    if (named == nullptr || named->left()) sockets_.close(connection);
  });
}

void ControlPlane::on_reached(ControlConnection& connection) {
  processes_[connection.peer].link(connection.kind).connected(now());
  if (connection.kind == LinkKind::kLocal) processes_.watch_exit(connection.peer, connection.pid);
}

void ControlPlane::on_open(ControlConnection& connection) {
  on_reached(connection);
  const bool local = connection.kind == LinkKind::kLocal;
  log(LogLevel::kDebug, "control link to " + name_of(connection.peer, groups_, processes_) +
                            (local ? " is open, on this host" : " is open, over TCP"));
  gossip_.bring_up_to_date(connection, now());
}

void ControlPlane::on_frame(ControlConnection& connection, const Frame& frame) {
  if (frame.type == FrameType::kExits) return on_exit_announced(connection);
  if (frame.type == FrameType::kSeen) connection.exit_seen = true;
  // The peer may be ending, too: its last notices must arrive before its end is passed on.
  if (shutdown_.is_sending() && frame.type == FrameType::kFlood)
    return gossip_.on_flood(connection, frame, now());
  if (!shutdown_.here()) return;
  if (frame.type == FrameType::kDumpRequest || frame.type == FrameType::kSnapshotRequest)
    return on_client(connection, frame);
  if (ControlPeer* peer = processes_.find(connection.peer))
    peer->link(connection.kind).heard(now());
  switch (frame.type) {
    case FrameType::kLost:
    case FrameType::kLeft:
      return on_departure(connection, frame);
    case FrameType::kFlood:
      return gossip_.on_flood(connection, frame, now());
    case FrameType::kFormed:
      return gossip_.on_formed(connection, frame);
    case FrameType::kSnapshotSearch:
      return snapshots_.on_search(connection, frame, paused_, now());
    case FrameType::kSnapshotAnswer:
      return snapshots_.on_answer(frame, now());
    case FrameType::kNeed:
      connection.peer_needs = !frame.body.empty() && frame.body[0] != std::byte{0};
      if (!connection.peer_needs && !connection.needed) timer_.hurry();
      return;
    // Heartbeats, and frame types of later versions.
    default:
      return;
  }
}

void ControlPlane::on_departure(ControlConnection& connection, const Frame& frame) {
  const auto departure = PeerDeparture::decode(frame.body);
  if (!departure) return;
  if (departure->context_id != connection.peer && !groups_.has(connection.peer)) {
    pending_departures_.push_back({connection.peer, frame.type, *departure});
    if (pending_departures_.size() > kMostPendingDepartures) pending_departures_.pop_front();
    return;
  }
  drain_before_report(departure->context_id, connection);
  learn_departure(frame.type, *departure, &connection);
}

void ControlPlane::learn_departure(FrameType type, const PeerDeparture& departure,
                                   const ControlConnection* from) {
  if (type == FrameType::kLost)
    departures_.learn_lost(departure.context_id, departure.cause, from);
  else
    departures_.learn_left(departure.context_id, from);
}

void ControlPlane::learn_pending_departures() {
  for (PendingDeparture& one : std::exchange(pending_departures_, {})) {
    if (groups_.has(one.from))
      learn_departure(one.type, one.departure, nullptr);
    else
      pending_departures_.push_back(std::move(one));
  }
}

void ControlPlane::on_membership_stream(ControlConnection& connection, const ControlHello& hello) {
  if (connection.kind == LinkKind::kLocal && connection.uid != geteuid()) return;
  events_.on_membership_stream(std::move(connection.stream), hello, connection.kind);
}

// Notices that the process itself has sent come first, because no other process of its host repeats
// them.
void ControlPlane::drain_before_report(uint64_t id, const ControlConnection& teller) {
  ControlConnection* const own = sockets_.find(id, LinkKind::kLocal);
  // While frames of the teller are being handled, its connection is not read again.
  if (own == nullptr || own == &teller || hears_out_) return;
  hears_out_ = true;
  sockets_.receive(*own);
  hears_out_ = false;
}

void ControlPlane::on_exit_announced(ControlConnection& connection) {
  processes_[connection.peer].exits(now());
  // At the next tick another representative may take the place of one that ends.
  sockets_.send(connection, make_frame(FrameType::kSeen));
  timer_.hurry();
}

// During the graceful shutdown this process checks no others. It still reports processes that have
// announced their end as left, because they may have no link to other hosts.
void ControlPlane::tell_of_ends() {
  for (const auto& [id, peer] : processes_.all())
    if (peer.exiting() && history_.record_left(id)) gossip_.pass_on_left(id, nullptr);
}

void ControlPlane::on_client(ControlConnection& connection, const Frame& frame) {
  // The uid is that of the kernel, which it reports inside the host only.
  const bool allowed = connection.uid == geteuid() || connection.uid == 0;
  if (connection.kind != LinkKind::kLocal || !allowed) return sockets_.close(connection);
  if (frame.type == FrameType::kSnapshotRequest) {
    const std::byte request = frame.body.empty() ? std::byte{0} : frame.body[0];
    return snapshots_.begin(connection, static_cast<uint8_t>(request), now());
  }
  sockets_.send(connection, make_frame(FrameType::kDump, report()));
  sockets_.close_after_output(connection);
}

void ControlPlane::on_closed(const ControlConnection& connection, bool was_reached, int errno_value,
                             const std::string& reason) {
  ControlPeer* peer = processes_.find(connection.peer);
  if (!shutdown_.here() || peer == nullptr) return;
  PeerLink& link = peer->link(connection.kind);
  if (!was_reached) return link.failed(errno_value, reason);
  timer_.hurry();
  // The other side may close a connection that neither needs. Otherwise the link is dialed at once,
  // to find out what has happened.
  const bool given_up = !connection.needed && !peer->exiting();
  link.ended(given_up, errno_value, reason, now());
}

}  // namespace ringdist
