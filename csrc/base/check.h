// check(): for what can only be false through a bug of ours. It prints where and stops the process,
// because going on could send wrong numbers. Everything that a user or a peer can cause is an
// Error.
#pragma once

#include <source_location>
#include <string_view>

namespace ringdist {

[[noreturn]] void check_failed(std::string_view what, std::source_location where);

inline void check(bool holds, std::string_view what,
                  std::source_location where = std::source_location::current()) {
  if (!holds) [[unlikely]]
    check_failed(what, where);
}

}  // namespace ringdist
