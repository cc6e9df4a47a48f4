// Which kernels have a codec's bytes.
#pragma once

#include <optional>

#include "codec/codec.h"
#include "cuda/kernel/calls.h"

namespace ringdist::gpu {

// None for `none`, which needs none. `dtype`: the op's.
std::optional<KernelCodec> kernel_codec_of(const Codec& codec, DType dtype = DType::kFloat32);

}  // namespace ringdist::gpu
