#include "base/thrown.h"

#include <exception>
#include <string>

namespace ringdist {
namespace {

// Made when the program starts, and never destroyed: threads may outlive main().
const Error& made_at_start = *new Error(ErrorKind::kSystem, "an exception in the engine");

}  // namespace

Error thrown_error() noexcept {
  try {
    throw;
  } catch (const std::exception& e) {
    try {
      return Error(ErrorKind::kSystem, std::string("an exception in the engine: ") + e.what());
    } catch (...) {
      return made_at_start;
    }
  } catch (...) {
    return made_at_start;
  }
}

}  // namespace ringdist
