// The greeting of control connections: hellos, and the answers to them.
#include <cerrno>

#include "base/describe.h"
#include "control/connection_manager.h"

namespace ringdist {
namespace {

using State = ControlConnection::State;
constexpr size_t kMaxReason = 256;  // bytes of a refusal that are shown

}  // namespace

void ConnectionManager::greet(ControlConnection& c, const Frame& frame) {
  if (!c.dialed) {
    if (frame.type == FrameType::kDataHello) return hand_over_data(c, frame.body);
    const bool is_membership = frame.type == FrameType::kMembershipHello;
    auto hello = is_membership || frame.type == FrameType::kHello ? ControlHello::decode(frame.body)
                                                                  : std::nullopt;
    if (!hello || c.state != State::kGreeting) return close(c);
    if (c.stream.peer() != 0 && c.stream.peer() != hello->from) {
      log_refused(c, "it has " + c.stream.peer_name() + ", and names another process");
      return close(c);
    }
    if (is_membership) return hand_over(c, *hello);
    c.hello = *hello;
    by_peer_.lead_to(hello->from, c);
    answer(c);
    return;
  }
  auto id = decode_id(frame.body);
  if (frame.type == FrameType::kRefused) {
    fail(c, EACCES, printable(decode_text(frame.body), kMaxReason));
  } else if (!id || *id != c.peer) {
    fail(c, EPROTO, "another process answers on its control socket");
  } else if (frame.type == FrameType::kWelcome && c.hello.nonce != 0) {
    open(c);
  } else if (frame.type == FrameType::kHeld && c.state == State::kGreeting) {
    c.state = State::kHeld;
    c.since = now_;
    delegate_.on_reached(c);
  } else {
    fail(c, EPROTO, "a control frame of unexpected type");
  }
}

void ConnectionManager::hand_over(ControlConnection& c, const ControlHello& hello) {
  if (hello.to != my_id_ || hello.from == my_id_) return close(c);
  epoll_.remove(c.stream.fd().get());
  delegate_.on_membership_stream(c, hello);
  close(c);
}

void ConnectionManager::hand_over_data(ControlConnection& c, ConstBytes hello) {
  if (c.kind == LinkKind::kTcp && c.state == State::kGreeting) {
    epoll_.remove(c.stream.fd().get());
    delegate_.on_data_socket(c.stream.release(), hello);
  }
  close(c);
}

void ConnectionManager::answer(ControlConnection& c) {
  AcceptDecision admission = delegate_.admit(c, c.hello);
  if (admission.action == AcceptAction::kHold) {
    if (c.state != State::kHeld) hold(c);
    return;
  }
  if (admission.action == AcceptAction::kRefuse) {
    if (!admission.reason.empty()) send(c, make_frame(FrameType::kRefused, admission.reason));
    close_after_output(c);
    return;
  }
  if (!wins(c)) return close(c);
  send(c, id_frame(FrameType::kWelcome, my_id_));
  open(c);
}

// A closing connection does not count: its peer gets a new one.
bool ConnectionManager::wins(ControlConnection& incoming) {
  for (ControlConnection* other : by_peer_.to(incoming.peer)) {
    const bool ends = other->closed() || other->state == State::kClosing;
    if (other == &incoming || other->kind != incoming.kind || ends || other->is_stranger())
      continue;
    // A dialed connection that is held must not win: the peer has just shown that it prefers its
    // own.
    if (other->dialed && my_id_ < incoming.peer && other->state != State::kHeld) return false;
    if (!other->dialed && incoming.state == State::kHeld) return false;
    close(*other);
  }
  return true;
}

void ConnectionManager::open(ControlConnection& c) {
  if (c.closed()) return;
  c.state = State::kOpen;
  c.since = now_;
  c.stream.limit_frames(kMaxFrameBody);
  delegate_.on_open(c);
}

void ConnectionManager::hold(ControlConnection& c) {
  c.state = State::kHeld;
  c.since = now_;
  send(c, id_frame(FrameType::kHeld, my_id_));
}

void ConnectionManager::readmit() {
  // The keys order connections by age.
  for (auto& [key, c] : connections_) {
    if (c->dialed || c->state != State::kHeld) continue;
    answer(*c);
  }
}

}  // namespace ringdist
