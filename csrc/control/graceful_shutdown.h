// Graceful shutdown of the control plane: announces that this process leaves, so that nobody takes
// its end for a loss. A state machine that the tick advances. Control thread only.
//
//   `kHere`     Nothing was announced.
//   `kSending`  The announcement waits until links that were dialed for it are open.
//   `kWaiting`  It has been sent; connections stay while it is on its way.
//   `kGone`     Nothing more is sent or reported.
#pragma once

#include <cstdint>
#include <future>
#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "control/control_connection.h"
#include "control/control_peers.h"

namespace ringdist {

// The steps of a graceful shutdown, from begin() to the answer. Each of the two waiting states
// lasts at most 200 ms.
class GracefulShutdown {
 public:
  enum class State : uint8_t { kHere, kSending, kWaiting, kGone };

  GracefulShutdown(uint64_t id, const ControlPeerTable& processes, ConnectionSender& sender)
      : id_(id), processes_(processes), sender_(sender) {}

  State state() const { return state_; }
  bool here() const { return state_ == State::kHere; }
  // Returns true while the shutdown is under way.
  bool is_sending() const { return state_ == State::kSending || state_ == State::kWaiting; }

  // Starts the shutdown, once only; advance() then leads to the answer, soon. With `process_ends`
  // connections stay open until the kernel closes them, which shows others when the process ends.
  // `answer` gets success in every case. Listening ends at once.
  void begin(bool process_ends, std::shared_ptr<std::promise<Error>> answer, TimePoint now);
  // Takes one step.
  void advance(TimePoint now);
  // Ends the shutdown at once, because the control thread ends. A pending answer is given.
  void end();

 private:
  // Returns true while a link to another host is being dialed.
  bool waits_for_links();
  // Sends the announcement and enters kWaiting.
  void send_exit_notice(TimePoint now);
  // Returns true if `connection` must stay open for the present.
  bool waits_for(ControlConnection& connection) const;
  // Closes the connections unless the process ends, gives the answer and enters kGone.
  void finish();

  const uint64_t id_;
  const ControlPeerTable& processes_;
  ConnectionSender& sender_;
  State state_ = State::kHere;
  bool process_ends_ = false;
  std::shared_ptr<std::promise<Error>> answer_;
  TimePoint until_{};  // end of this state
};

}  // namespace ringdist
