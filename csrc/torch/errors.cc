#include "torch/errors.h"

#include "torch/argument_error.h"

namespace ringdist {
namespace {

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

std::exception_ptr to_exception(const Error& error) {
  try {
    throw_error(error);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace ringdist
