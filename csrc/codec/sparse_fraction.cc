#include "codec/sparse_fraction.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace ringdist {
namespace {

// Parses all of `text` as a T; returns `otherwise` if that fails.
template <typename T>
T number(std::string_view text, T otherwise) {
  T out{};
  const char* end = text.data() + text.size();
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): `end` is the size
  const auto [stopped, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && stopped == end ? out : otherwise;
}

}  // namespace

Result<int> parse_fraction(std::string_view codec, std::string_view parameter) {
  if (parameter.find('.') == std::string_view::npos) {
    const int k = number(parameter, 0);
    if (k >= 1 && k <= kSparseBlock) return k;
  } else {
    const double share = number(parameter, 0.0);
    if (share > 0 && share <= 1)
      return std::max(1, static_cast<int>(std::lround(share * kSparseBlock)));
  }
  const std::string name(codec);
  return Error(ErrorKind::kInvalidArgument,
               "codec '" + name + "': parameter '" + std::string(parameter) +
                   "' is not known; have: k of 1024, from 1 to 1024 (" + name +
                   ":10), or a share above 0.0, to 1.0 (" + name + ":0.01)");
}

}  // namespace ringdist
