// Errors as values. An Error is cheap to pass and copy (one shared pointer); a default-constructed
// one means success. Functions that run on a lane or on the control thread return it; only the
// boundary to the caller (torch/) turns it into an exception. Errors are immutable, so any thread
// may read any copy.
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

// Category of an error. torch/ chooses the type of the exception by it.
enum class ErrorKind : uint8_t {
  kInvalidArgument,  // a caller's mistake, found before anything was sent
  kNotSupported,     // a combination that has no meaning or no code
  kMismatch,         // ranks disagree on what they call
  kPeerLost,         // a process died, was silent too long or left
  kTimeout,          // the group's timeout passed
  kAborted,          // the group was aborted or destroyed by this process
  kSystem,           // the operating system or a library reported a failure
  kProtocol,         // bytes from the network that do not form a valid message
};

// Returns the kind in words: "peer lost".
std::string_view error_kind_name(ErrorKind kind);

// Success, or a kind, a message, the ranks concerned and the source location where the error was
// created.
class [[nodiscard]] Error {
 public:
  Error() = default;
  Error(ErrorKind kind, std::string message,
        std::source_location where = std::source_location::current());

  explicit operator bool() const { return detail_ != nullptr; }

  // The following functions require an error, not success.
  ErrorKind kind() const { return detail_->kind; }
  const std::string& message() const { return detail_->message; }
  // Returns the ranks of the group that the error is about, sorted: those that caused it, are lost
  // or have not arrived. The list is empty if no rank is identified.
  const std::vector<int>& ranks() const { return detail_->ranks; }

  // Returns the message followed by the source location, as "message (csrc/dir/file.cc:12)".
  std::string what() const;

  // Return a copy of the error with these ranks, or with a text before or after its message. They
  // require an error.
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

// Returns a kSystem error: `what`, the text of `errno_value`, and advice where there is some.
Error system_error(std::string_view what, int errno_value,
                   std::source_location where = std::source_location::current());

// A value, or the Error that replaces it. value() requires ok(); error() of a value is success. An
// Error that is given to the constructor must not be success: callers would find neither a value
// nor an error.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that functions can return either.
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  Error error() const { return ok() ? Error() : std::get<Error>(state_); }
  T& value() { return std::get<T>(state_); }
  const T& value() const { return std::get<T>(state_); }

 private:
  std::variant<T, Error> state_;
};

// Converts the exception that is being handled into an Error. Call it within a catch block only.
// The usual causes are lack of memory and of threads. If there is no memory for a message, it
// returns one that was allocated at startup.
Error current_exception_error() noexcept;

}  // namespace ringdist
