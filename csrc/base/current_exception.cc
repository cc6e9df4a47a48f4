#include "base/current_exception.h"

#include <exception>
#include <string>
#include <system_error>

namespace ringdist {
namespace {

// Made when the program starts, and never destroyed: threads may outlive main().
const Error& made_at_start = *new Error(ErrorKind::kSystem, "an exception in the engine");

}  // namespace

Error current_exception_error() noexcept {
  try {
    throw;
  } catch (const std::exception& e) {
    try {
      const auto* of_system = dynamic_cast<const std::system_error*>(&e);
      if (of_system && of_system->code() == std::errc::resource_unavailable_try_again)
        return Error(ErrorKind::kSystem,
                     std::string("the system gives this process no further thread (") + e.what() +
                         "): raise 'ulimit -u', or the container's limits");
      return Error(ErrorKind::kSystem, std::string("an exception in the engine: ") + e.what());
    } catch (...) {
      return made_at_start;
    }
  } catch (...) {
    return made_at_start;
  }
}

}  // namespace ringdist
