// Codec that leaves values as they are. Other codecs use it as a fallback.
#pragma once

#include <string_view>

#include "codec/codec.h"

namespace ringdist {

inline constexpr std::string_view kNoCodec = "none";

const Codec& no_codec();  // any thread

}  // namespace ringdist
