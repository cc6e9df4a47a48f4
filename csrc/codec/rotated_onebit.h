// `onebit+h`, the default of `onebit`: same bytes as RotatedCodec, by loops that do rotation and
// signs together.
#pragma once

#include "codec/codec.h"

namespace ringdist {

// `onebit` is what parse_codec("onebit") gives. Needs rotated_sign_loops().
CodecPtr rotate_onebit(CodecPtr onebit);

}  // namespace ringdist
