// One function per codec file: its row of the registry.
#pragma once

#include "codec/codec.h"

namespace ringdist {

CodecRow none_row();
CodecRow fp16_row();
CodecRow bf16_row();
CodecRow fp8_row();
CodecRow int8_row();
CodecRow int4_row();
CodecRow int2_row();
CodecRow onebit_row();
CodecRow topk_row();
CodecRow randomk_row();
CodecRow lossless_row();

}  // namespace ringdist
