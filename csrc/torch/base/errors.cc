#include "torch/base/errors.h"

#include <string>

namespace ringdist {
namespace {

// Messages name the operation and the cause, so places in the code are left out.
constexpr c10::SourceLocation kNowhere{"", "", 0};

}  // namespace

void throw_error(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::kInvalidArgument:
      throw ArgumentError(kNowhere, error.message());
    case ErrorKind::kNotSupported:
      throw NotSupportedError(kNowhere, error.message());
    case ErrorKind::kPeerLost:
      throw c10::DistNetworkError(kNowhere, error.message());
    case ErrorKind::kMismatch:
    case ErrorKind::kTimeout:
    case ErrorKind::kAborted:
    case ErrorKind::kSystem:
    case ErrorKind::kProtocol:
      break;
  }
  throw c10::DistBackendError(kNowhere, error.message());
}

Result<Milliseconds> checked_timeout(std::string_view op, Milliseconds timeout) {
  // pybind11 turns a timedelta of more than 292,000 years into a number of either sign.
  if (timeout < -kLongest || timeout > kLongest) return kLongest;
  if (timeout >= Milliseconds(0)) return timeout;
  return Error(ErrorKind::kInvalidArgument, "ringdist: " + std::string(op) +
                                                ": timeout must not be negative, got " +
                                                std::to_string(timeout.count()) + " ms");
}

std::exception_ptr to_exception(const Error& error) {
  try {
    throw_error(error);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace ringdist
