// The codec that leaves values as they are, which others fall back to.
#pragma once

#include <string_view>

namespace ringdist {

inline constexpr std::string_view kNoCodec = "none";

}  // namespace ringdist
