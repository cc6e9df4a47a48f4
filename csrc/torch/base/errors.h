// Conversion of an Error to the C++ exception that Python users see. Its translation to the types
// of torch_ringdist is in bindings/module.cc. Any thread.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace ringdist {

// Both convert an Error. kInvalidArgument becomes ArgumentError, kNotSupported NotSupportedError,
// kPeerLost DistNetworkError, and all others DistBackendError. The last two are RuntimeErrors of
// torch.distributed.
[[noreturn]] void throw_error(const Error& error);
std::exception_ptr to_exception(const Error& error);

// Returns a user's timeout for `op`, limited to kLongest. Error: kInvalidArgument if it is
// negative. A timeout below -kLongest is a timedelta that has overflowed, and gives kLongest too.
Result<Milliseconds> checked_timeout(std::string_view op, Milliseconds timeout);

// Throws the exception for an error. Does nothing for a success.
inline void throw_if(const Error& error) {
  if (error) throw_error(error);
}

// Returns the value of a result, or throws the exception for its error.
template <typename T>
T value_of(Result<T> result) {
  throw_if(result.error());
  return std::move(result.value());
}

// Exceptions for invalid arguments. In Python these are torch_ringdist.ArgumentError and
// torch_ringdist.NotSupportedError, which are also RuntimeErrors, as gloo raises them. PyTorch
// itself translates them to ValueError and TypeError.
class ArgumentError final : public c10::ValueError {
  using ValueError::ValueError;
};

class NotSupportedError final : public c10::TypeError {
  using TypeError::TypeError;
};

}  // namespace ringdist
