// Internal assertions. check() guards conditions that only a bug of this library can violate. If
// the condition is false, it prints the source location and aborts the process, because continuing
// could deliver wrong results. Everything that a user or a peer can cause is an Error instead. Any
// thread.
#pragma once

#include <source_location>
#include <string_view>

namespace ringdist {

// Prints "[ringdist] internal error at FILE:LINE: `what`" to stderr and aborts.
[[noreturn]] void check_failed(std::string_view what, std::source_location where);

// Aborts through check_failed() unless `holds`. It is active in release builds, too.
inline void check(bool holds, std::string_view what,
                  std::source_location where = std::source_location::current()) {
  if (!holds) [[unlikely]]
    check_failed(what, where);
}

}  // namespace ringdist
