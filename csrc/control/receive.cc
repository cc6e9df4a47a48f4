#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "control/loop.h"
#include "os/pidfd.h"

namespace ringdist {

using Verdict = ControlSockets::Verdict;

ControlSockets::Admission ControlLoop::admit(const ControlConnection& connection,
                                             const Hello& hello) {
  if (hello.from == id_ || hello.to != id_)
    return {Verdict::kRefuse, "another process listens there now"};
  if (connection.kind == LinkKind::kLocal) {
    if (connection.uid != geteuid()) return {Verdict::kRefuse, "it runs as another user"};
  } else {
    auto group = groups_.find(hello.nonce);
    if (group == groups_.end()) return {Verdict::kHold, ""};
    // Not a word to somebody who cannot show that he belongs here.
    if (!group->second.roster.has(hello.from)) return {Verdict::kRefuse, ""};
  }
  if (gone(hello.from))
    return {Verdict::kRefuse, "it gave this process up before: " +
                                  ledger_.lost(hello.from).value_or("this process had left")};
  return {Verdict::kAccept, ""};
}

void ControlLoop::on_reached(ControlConnection& connection) {
  ControlPeer::Line& line = peers_[connection.peer].line(connection.kind);
  line = ControlPeer::Line();
  line.reached = true;
  line.heard = now_;
}

void ControlLoop::on_open(ControlConnection& connection) {
  on_reached(connection);
  if (connection.kind == LinkKind::kLocal) watch_exit(connection.peer, connection.pid);
  log(LogLevel::kDebug,
      "control link to " + name_of(connection.peer) +
          (connection.kind == LinkKind::kLocal ? " is open, on this host" : " is open, over TCP"));
  tell_all_formed(connection);
  for (const auto& frame : ledger_.frames(now_)) sockets_.send(connection, frame);
}

void ControlLoop::watch_exit(uint64_t peer, int pid) {
  ControlPeer& p = peers_[peer];
  p.pid = pid;
  if (p.pidfd) return;
  auto pidfd = open_pidfd(pid);
  if (!pidfd.ok()) return;  // not visible from here: heartbeats must do
  uint64_t key = next_exit_key_++;
  if (epoll_.add(pidfd.value().get(), EPOLLIN, key)) return;
  p.pidfd = std::move(pidfd.value());
  exits_[key] = peer;
}

void ControlLoop::on_frame(ControlConnection& connection, const Frame& frame) {
  if (frame.type == FrameType::kExits) return on_exits(connection);
  if (frame.type == FrameType::kSeen) connection.exit_seen = true;
  if (silent_) return;
  if (frame.type == FrameType::kDumpRequest) {
    on_dump_request(connection);
    return;
  }
  if (auto peer = peers_.find(connection.peer); peer != peers_.end())
    peer->second.line(connection.kind).heard = now_;
  switch (frame.type) {
    case FrameType::kLost:
    case FrameType::kLeft:
      on_record(connection, frame);
      return;
    case FrameType::kFlood:
      on_flood(connection, frame);
      return;
    case FrameType::kFormed:
      on_formed(connection, frame);
      return;
    case FrameType::kNeed:
      connection.peer_needs = !frame.body.empty() && frame.body[0] != std::byte{0};
      if (!connection.peer_needs && !connection.needed) hurry();
      return;
    default:
      return;  // heartbeats, and what later versions may say
  }
}

void ControlLoop::on_exits(ControlConnection& connection) {
  peers_[connection.peer].exits_since = now_;
  sockets_.send(connection, make_frame(FrameType::kSeen));
}

void ControlLoop::on_record(ControlConnection& connection, const Frame& frame) {
  auto fate = Fate::decode(frame.body);
  if (!fate) return;
  if (frame.type == FrameType::kLost)
    learn_lost(fate->context_id, fate->cause, &connection);
  else
    learn_left(fate->context_id, &connection);
}

void ControlLoop::on_flood(ControlConnection& connection, const Frame& frame) {
  auto record = FloodRecord::decode(frame.body);
  if (!record || record->origin == id_ || !ledger_.record_flood(*record, now_)) return;
  sockets_.send_to_all(make_frame(FrameType::kFlood, frame.body), &connection);
  events_.on_flood(record->payload);
}

void ControlLoop::on_dump_request(ControlConnection& connection) {
  if (connection.uid != geteuid() && connection.uid != 0) {
    sockets_.close(connection);
    return;
  }
  sockets_.send(connection, make_frame(FrameType::kDump, report()));
  sockets_.close_after_output(connection, now_);
}

void ControlLoop::on_closed(const ControlConnection& connection, bool was_reached, int errno_value,
                            const std::string& reason) {
  auto found = peers_.find(connection.peer);
  if (silent_ || found == peers_.end()) return;
  // It kept the connection until its end. The kernel's word on a local process is as good, and
  // comes a moment later, when the parent of that process is told.
  if (was_reached && exiting(connection.peer) && !found->second.pidfd)
    return learn_left(connection.peer, &connection);
  ControlPeer::Line& line = found->second.line(connection.kind);
  line.failure = reason;
  if (errno_value == ECONNREFUSED) ++line.refusals;
  if (errno_value == EACCES) line.rejection = reason;
  if (!was_reached) return;
  // The other side may close what neither needs; otherwise find out at once what has happened.
  if (!connection.needed) line.reached = false;
  line.refusals = 0;
  line.retry_at = now_;
  hurry();
}

// A process of this host has ended. What it said before comes first: it may have said goodbye.
void ControlLoop::on_exit(uint64_t peer) {
  if (auto* link = sockets_.find(peer, LinkKind::kLocal)) sockets_.receive(*link, now_);
  if (gone(peer)) return;
  if (silent_)
    drop(peer);
  else if (exiting(peer))
    learn_left(peer, nullptr);
  else
    learn_lost(peer, "its process (" + name_of(peer) + ") died");
}

void ControlLoop::learn_lost(uint64_t id, const std::string& cause, const ControlConnection* from) {
  if (!ledger_.record_lost(id, cause)) return;
  forget_old_fates();
  log(LogLevel::kDebug, name_of(id) + " is lost: " + cause);
  // The culprit is told as well: if it was only stopped it learns that it is out.
  sockets_.send_to_all(Fate{id, cause}.frame(FrameType::kLost), from);
  if (id != id_) drop(id);
  hurry();
  events_.on_process_lost(id, Error(ErrorKind::kPeerLost, cause));
}

void ControlLoop::learn_left(uint64_t id, const ControlConnection* from) {
  if (id == id_ || !ledger_.record_left(id)) return;
  forget_old_fates();
  log(LogLevel::kDebug, name_of(id) + " has left");
  sockets_.send_to_all(Fate{id, ""}.frame(FrameType::kLeft), from);
  drop(id);
  hurry();
  events_.on_process_left(id);
}

void ControlLoop::forget_old_fates() {
  ledger_.forget_old([this](uint64_t id) { return id == id_ || needed(id); });
}

void ControlLoop::drop(uint64_t id) {
  sockets_.for_each([&](ControlConnection& c) {
    if (c.peer == id) sockets_.close_after_output(c, now_);
  });
  forget(id);
}

void ControlLoop::forget(uint64_t id) {
  auto found = peers_.find(id);
  if (found == peers_.end()) return;
  if (found->second.pidfd) epoll_.remove(found->second.pidfd.get());
  std::erase_if(exits_, [id](const auto& entry) { return entry.second == id; });
  peers_.erase(found);
}

}  // namespace ringdist
