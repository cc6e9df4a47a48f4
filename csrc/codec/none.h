// Codec `none`: the elements as they are.
#pragma once

#include "codec/codec.h"

namespace ringdist {

const Codec& none_codec();

}  // namespace ringdist
