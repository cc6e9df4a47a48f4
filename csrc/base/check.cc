#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace ringdist {

void check_failed(std::string_view what, std::source_location where) {
  std::fprintf(stderr, "[ringdist] internal error at %s:%u: %.*s\n", where.file_name(),
               where.line(), static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace ringdist
