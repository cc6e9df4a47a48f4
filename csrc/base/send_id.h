// What a sender calls one of its sends: it comes back when the send has ended.
#pragma once

#include <cstdint>

namespace ringdist {

using SendId = uint64_t;
inline constexpr SendId kNoSendId = 0;  // nobody wants to know

}  // namespace ringdist
