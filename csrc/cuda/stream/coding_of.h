// Which kernels have a codec's bytes.
#pragma once

#include <optional>

#include "codec/codec.h"
#include "cuda/kernel/calls.h"

namespace ringdist::gpu {

// None for codecs without kernels.
std::optional<Coding> coding_of(const Codec& codec);

}  // namespace ringdist::gpu
