#include "control/graceful_shutdown.h"

#include <utility>

#include "base/check.h"
#include "control/control_frames.h"

namespace ringdist {
namespace {

constexpr Duration kShutdownTime = Milliseconds(200);  // limit of each state

}  // namespace

void GracefulShutdown::begin(bool process_ends, std::shared_ptr<std::promise<Error>> answer,
                             TimePoint now) {
  check(here(), "the shutdown is begun twice");
  state_ = State::kSending;
  process_ends_ = process_ends;
  answer_ = std::move(answer);
  until_ = now + kShutdownTime;
  sender_.stop_listening();
}

void GracefulShutdown::advance(TimePoint now) {
  check(is_sending(), "no shutdown is under way");
  if (state_ == State::kSending) {
    if (now < until_ && waits_for_links()) return;
    send_exit_notice(now);
  }
  bool waiting = false;
  sender_.for_each([&](ControlConnection& connection) {
    if (!process_ends_) sender_.end_output(connection);
    waiting |= waits_for(connection);
  });
  if (!waiting || now >= until_) finish();
}

bool GracefulShutdown::waits_for_links() {
  bool out = false;
  sender_.for_each([&](const ControlConnection& connection) {
    out |= connection.dialed && connection.kind == LinkKind::kTcp && !connection.open() &&
           connection.state != ControlConnection::State::kClosing;
  });
  return out;
}

void GracefulShutdown::send_exit_notice(TimePoint now) {
  const auto notice = process_ends_ ? make_frame(FrameType::kExits)
                                    : PeerDeparture{id_, ""}.frame(FrameType::kLeft);
  sender_.for_each([&](ControlConnection& connection) {
    const bool held_here =
        !connection.dialed && connection.state == ControlConnection::State::kHeld;
    if (connection.open() || held_here) sender_.send(connection, notice);
    if (!connection.open()) sender_.close(connection);
  });
  state_ = State::kWaiting;
  until_ = now + kShutdownTime;
}

// The other side must close first: closing here could discard an announcement that is on its way.
// If the process ends, peers confirm the announcement instead, and the end of the connection shows
// them its end. A peer that is ending as well has nothing to wait for.
bool GracefulShutdown::waits_for(ControlConnection& connection) const {
  if (!process_ends_) return true;
  return connection.open() && !connection.exit_seen && !processes_.exiting(connection.peer);
}

void GracefulShutdown::finish() {
  if (!process_ends_)
    sender_.for_each([this](ControlConnection& connection) { sender_.close(connection); });
  answer_->set_value({});
  state_ = State::kGone;
}

// With process_ends_ the connections stay open here, too: the kernel closes them with the process.
void GracefulShutdown::end() {
  if (state_ == State::kGone) return;
  const bool asked = is_sending();
  state_ = State::kGone;
  if (asked) answer_->set_value({});
  sender_.stop_listening();
  if (!process_ends_)
    sender_.for_each([this](ControlConnection& connection) { sender_.close(connection); });
}

}  // namespace ringdist
