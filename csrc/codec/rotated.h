// "+h": a seeded Hadamard rotation of each block in front of another codec.
#pragma once

#include "codec/codec.h"

namespace ringdist {

// Errors (kInvalidArgument): an exact codec, which a rotation would make inexact; a rotated one.
Result<CodecPtr> rotate(CodecPtr inner);

}  // namespace ringdist
