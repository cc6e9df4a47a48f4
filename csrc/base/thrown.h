// What was thrown where nothing should be: there was no memory, or no thread.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"

namespace ringdist {

// Within a catch block: what was caught, as an Error.
inline Error thrown_error() {
  try {
    throw;
  } catch (const std::exception& e) {
    return Error(ErrorKind::kSystem, std::string("an exception in the engine: ") + e.what());
  } catch (...) {
    return Error(ErrorKind::kSystem, "an exception in the engine");
  }
}

}  // namespace ringdist
