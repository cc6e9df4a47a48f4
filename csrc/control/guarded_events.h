// The owner of the control plane, of whom nothing that it throws gets through.
#pragma once

#include <string>

#include "base/log.h"
#include "base/thrown.h"
#include "control/events.h"

namespace ringdist {

// Runs it; what it throws (there is no memory, say) is logged. False if it threw.
template <typename Body>
bool guard_control(const char* what, Body&& body) {
  try {
    body();
    return true;
  } catch (...) {
    try {
      log(LogLevel::kError,
          std::string("control plane: ") + what + ": " + thrown_error().message());
    } catch (...) {  // and log() needs memory
    }
    return false;
  }
}

class GuardedEvents final : public ControlEvents {
 public:
  explicit GuardedEvents(ControlEvents& events) : events_(events) {}

  void on_process_lost(uint64_t context_id, const Error& cause) override {
    guard_control("a death was not taken in", [&] { events_.on_process_lost(context_id, cause); });
  }
  void on_process_left(uint64_t context_id) override {
    guard_control("a departure was not taken in", [&] { events_.on_process_left(context_id); });
  }
  void on_flood(std::span<const std::byte> payload) override {
    guard_control("a notice was not taken in", [&] { events_.on_flood(payload); });
  }
  std::string dump() override {
    std::string out;
    guard_control("no report", [&] { out = events_.dump(); });
    return out;
  }

 private:
  ControlEvents& events_;
};

}  // namespace ringdist
