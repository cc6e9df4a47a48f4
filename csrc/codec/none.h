// Codec that leaves values as they are. It serves parts and edges of an op that compresses others.
#pragma once

#include <string_view>

#include "codec/codec.h"

namespace ringdist {

inline constexpr std::string_view kNoCodec = "none";

// Returns the codec, which lives as long as the process. Any thread.
const Codec& no_codec();

}  // namespace ringdist
