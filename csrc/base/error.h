// Errors as values. An Error is cheap to pass and copy (one shared pointer); a default one means
// success. Functions that run on a lane or on the control thread return it; only the edge to the
// caller (torch/) turns it into an exception. Immutable, so any thread may read any copy.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ringdist {

enum class ErrorKind : uint8_t {
  kInvalidArgument,  // a caller's mistake, found before anything was sent
  kNotSupported,     // a combination that has no meaning or no code
  kMismatch,         // ranks disagree on what they call
  kPeerLost,         // a process died, went silent or left
  kTimeout,          // the group's timeout passed
  kAborted,          // the group was aborted or destroyed by this process
  kSystem,           // the operating system or a library said no
  kProtocol,         // bytes from the wire that make no sense
};

std::string_view error_kind_name(ErrorKind kind);

class [[nodiscard]] Error {
 public:
  Error() = default;
  Error(ErrorKind kind, std::string message,
        std::source_location where = std::source_location::current());

  explicit operator bool() const { return detail_ != nullptr; }

  // The following require an error, not success.
  ErrorKind kind() const { return detail_->kind; }
  const std::string& message() const { return detail_->message; }
  // Those of its group that it is about, in order: who caused it, is lost or has not come. None
  // where nobody is known.
  const std::vector<int>& ranks() const { return detail_->ranks; }

  // The message followed by where in the source it began.
  std::string what() const;

  // The same error about these ranks, or with a text before or after its message.
  Error blame(std::vector<int> ranks) const;
  Error blame(int rank) const { return blame(std::vector<int>{rank}); }
  Error prefixed(std::string_view before) const;
  Error suffixed(std::string_view after) const;

 private:
  struct Detail {
    ErrorKind kind;
    std::string message;
    std::vector<int> ranks;
    std::source_location where;
  };
  Error changed(std::string message, std::vector<int> ranks) const;

  std::shared_ptr<const Detail> detail_;
};

// An Error with the text of errno appended.
Error system_error(std::string_view what, int errno_value,
                   std::source_location where = std::source_location::current());

// A value or the Error that took its place.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}

  bool ok() const { return std::holds_alternative<T>(state_); }
  Error error() const { return ok() ? Error() : std::get<Error>(state_); }
  T& value() { return std::get<T>(state_); }
  const T& value() const { return std::get<T>(state_); }

 private:
  std::variant<T, Error> state_;
};

// What was thrown where nothing should be: there was no memory, or no thread.

// Within a catch block: what was caught, as an Error. Where there is no memory to say it, one that
// was made while there was.
Error current_exception_error() noexcept;

}  // namespace ringdist
