// How this process leaves the control plane. Control thread only.
//
//   kHere      nothing was said
//   kSpeaking  the words are yet to be sent, as soon as links that were dialed for them are open
//   kWaiting   they are on their way: for so long connections stay
//   kGone      nothing more is said, and nothing reported
#pragma once

#include <cstdint>
#include <future>
#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "control/control_connection.h"
#include "control/control_peers.h"

namespace ringdist {

class GracefulShutdown {
 public:
  enum class State : uint8_t { kHere, kSending, kWaiting, kGone };

  GracefulShutdown(uint64_t id, const ControlPeerTable& processes, ConnectionSender& voice)
      : id_(id), processes_(processes), sender_(voice) {}

  State state() const { return state_; }
  bool here() const { return state_ == State::kHere; }
  bool is_sending() const { return state_ == State::kSending || state_ == State::kWaiting; }

  // From here on say() leads to the answer, soon. `process_ends`: connections stay open until the
  // kernel closes them, which tells others when. Once only.
  void begin(bool process_ends, std::shared_ptr<std::promise<Error>> answer, TimePoint now);
  // One step of it; what throws is said by the next.
  void advance(TimePoint now);
  // Said, or cut short: the control thread ends.
  void end();

 private:
  bool waits_for_links();
  void send_exit_notice(TimePoint now);
  bool waits_for(ControlConnection& connection) const;
  void finish();

  const uint64_t id_;
  const ControlPeerTable& processes_;
  ConnectionSender& sender_;
  State state_ = State::kHere;
  bool process_ends_ = false;
  std::shared_ptr<std::promise<Error>> answer_;
  TimePoint until_{};  // of this state
};

}  // namespace ringdist
