// Callback interface of the control plane. Context implements it and passes the events on to the
// engine and to the membership service.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "control/control_connection.h"

namespace ringdist {

// Receives the events of the control plane. All functions are called on the control thread, with no
// lock of the control plane held. They must return quickly (dump() and snapshot() within 500 ms,
// sample_calls() within 50) and must not call back, except for flood.
struct ControlDelegate {
  virtual ~ControlDelegate() = default;

  // A process died or was silent too long; `cause` is of kind kPeerLost. It can be this process
  // itself, if others gave it up while it was stopped. For each context either this function or
  // on_process_left() is called, once.
  virtual void on_process_lost(uint64_t context_id, const Error& cause) = 0;
  // A process has left: it announced that in a graceful shutdown or, if it announced the end of its
  // process, has ended.
  virtual void on_process_left(uint64_t context_id) = 0;
  // Delivers a notice of another process, `origin`, once. `payload` is valid during the call.
  virtual void on_flood(uint64_t origin, std::span<const std::byte> payload) = 0;
  // Another process has dialed for membership messages. The control plane has checked only that
  // they are for this process and, inside a host, come from this user. `stream` may hold some of
  // them already. A delegate that takes none closes it.
  virtual void on_membership_stream(FramedSocket stream, const ControlHello& hello,
                                    LinkKind kind) = 0;
  // Another process has dialed for messages of a transport. `hello` is the body of its first frame,
  // which the control plane does not read, and nothing follows it before it is answered.
  virtual void on_data_socket(Stream socket, ConstBytes hello) = 0;
  // The control thread ends because of an exception, such as lack of memory, so this process can
  // neither detect failures nor send notices any more. Called last, once; again if it throws.
  virtual void on_control_failed(const Error& cause) = 0;
  // Returns lines that describe the owner's current work, for a human.
  virtual std::string dump() = 0;
  // Returns the state of this process as JSON on one line, for a snapshot. `request` may have the
  // bits kWithOps, kWithStatistics and kWithStack.
  virtual std::string snapshot(uint8_t request) = 0;
  // The next four functions serve the search for stragglers. An owner without ops needs none.
  // Returns a number that changes when this process calls ops. Takes no lock.
  virtual uint64_t activity() const { return 0; }
  // Returns a sample of the latest calls of this process. `paused` is the time for which this
  // process has stood still so far.
  virtual std::string sample_calls(Duration /*paused*/) { return {}; }
  // Takes the sample of a process, which may be this one: requested at `asked`, and received now.
  virtual void on_calls(uint64_t /*context_id*/, ConstBytes /*sample*/, TimePoint /*asked*/,
                        TimePoint /*now*/) {}
  // All samples that were requested together have come, or are late.
  virtual void on_calls_complete(TimePoint /*now*/) {}
};

}  // namespace ringdist
