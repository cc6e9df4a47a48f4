#include "base/error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string>
#include <system_error>

namespace ringdist {

std::string_view error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return "invalid argument";
    case ErrorKind::kNotSupported:
      return "not supported";
    case ErrorKind::kMismatch:
      return "mismatch";
    case ErrorKind::kPeerLost:
      return "peer lost";
    case ErrorKind::kTimeout:
      return "timeout";
    case ErrorKind::kAborted:
      return "aborted";
    case ErrorKind::kSystem:
      return "system error";
    case ErrorKind::kProtocol:
      return "protocol error";
  }
  return "unknown";
}

Error::Error(ErrorKind kind, std::string message, std::source_location where)
    : detail_(std::make_shared<const Detail>(Detail{kind, std::move(message), {}, where})) {}

// The path is cut before "csrc/", so that the text does not depend on the machine that built it.
std::string Error::what() const {
  std::string_view file = detail_->where.file_name();
  if (auto slash = file.rfind("csrc/"); slash != std::string_view::npos) file.remove_prefix(slash);
  return detail_->message + " (" + std::string(file) + ":" + std::to_string(detail_->where.line()) +
         ")";
}

Error Error::changed(std::string message, std::vector<int> ranks) const {
  Error out;
  out.detail_ = std::make_shared<const Detail>(
      Detail{detail_->kind, std::move(message), std::move(ranks), detail_->where});
  return out;
}

Error Error::blame(std::vector<int> ranks) const {
  std::ranges::sort(ranks);
  return changed(detail_->message, std::move(ranks));
}

Error Error::prefixed(std::string_view before) const {
  return changed(std::string(before) + detail_->message, detail_->ranks);
}

Error Error::suffixed(std::string_view after) const {
  return changed(detail_->message + std::string(after), detail_->ranks);
}

Error system_error(std::string_view what, int errno_value, std::source_location where) {
  const char* hint = errno_value == EMFILE ? ": raise 'ulimit -n'" : "";
  return Error(ErrorKind::kSystem, std::string(what) + ": " + std::strerror(errno_value) + hint,
               where);
}

namespace {

// Fallback of current_exception_error(). It is allocated at program start and never destroyed,
// because threads may outlive main().
const Error& made_at_start = *new Error(ErrorKind::kSystem, "an exception in the engine");

}  // namespace

Error current_exception_error() noexcept {
  try {
    throw;
  } catch (const std::exception& e) {
    try {
      // std::thread throws this code when the limit of threads is reached.
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
