// Part of every message that tells of a peer that died, left or aborted: clients of other backends
// know a lost peer by these words.
#pragma once

#include <string_view>

namespace ringdist {

inline constexpr std::string_view kClosedByPeer = "Connection closed by peer: ";

}  // namespace ringdist
