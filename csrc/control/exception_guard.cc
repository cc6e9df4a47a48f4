#include "control/exception_guard.h"

#include <string>
#include <utility>

#include "base/current_exception.h"
#include "base/log.h"

namespace ringdist {

void ExceptionGuard::begin_turn() {
  if (!std::exchange(failed_, false)) told_ = false;
}

void ExceptionGuard::caught(const char* what) noexcept {
  failed_ = true;
  if (told_) return;
  try {
    log(LogLevel::kError,
        std::string("control plane: ") + what + ": " + current_exception_error().message());
    told_ = true;
  } catch (...) {  // log() needs memory, too
  }
}

}  // namespace ringdist
