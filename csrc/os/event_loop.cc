#include "os/event_loop.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace ringdist {

void ExceptionGuard::begin_turn() {
  if (!std::exchange(failed_, false)) warned_ = false;
}

void ExceptionGuard::caught(const char* what) noexcept {
  failed_ = true;
  if (warned_) return;
  try {
    log(LogLevel::kError,
        std::string("control plane: ") + what + ": " + current_exception_error().message());
    warned_ = true;
  } catch (...) {  // log() needs memory, too
  }
}

}  // namespace ringdist
