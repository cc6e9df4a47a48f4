// The one place where an Error becomes the exception that Python users see.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace ringdist {

// kInvalidArgument -> ValueError, kNotSupported -> TypeError, kPeerLost -> DistNetworkError, all
// else -> DistBackendError (both of torch.distributed, both RuntimeErrors).
[[noreturn]] void throw_error(const Error& error);
std::exception_ptr to_exception(const Error& error);

// A user's timeout for `op`, at most kLongest. Error: it is negative.
Result<Milliseconds> checked_timeout(std::string_view op, Milliseconds timeout);

inline void throw_if(const Error& error) {
  if (error) throw_error(error);
}

template <typename T>
T value_of(Result<T> result) {
  throw_if(result.error());
  return std::move(result.value());
}

// What an argument raises that is not accepted. In Python these are torch_ringdist.ArgumentError
// and torch_ringdist.NotSupportedError, which are RuntimeErrors as well, as gloo raises them; where
// PyTorch translates by itself, ValueError and TypeError.
class ArgumentError final : public c10::ValueError {
  using ValueError::ValueError;
};

class NotSupportedError final : public c10::TypeError {
  using TypeError::TypeError;
};

}  // namespace ringdist
