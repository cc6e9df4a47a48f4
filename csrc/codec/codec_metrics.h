// Measurement of a codec on this machine, on one thread: its speed and its loss. The results are
// for tables, and no plan depends on them.
#pragma once

#include <cstddef>

#include "codec/codec.h"

namespace ringdist {

// Result of a measurement. Speeds are in 1e9 bytes of fp32 elements per second, medians over the
// repetitions.
struct CodecMetrics {
  double encode = 0;
  double encode_with_residual = 0;
  double decode = 0;
  double decode_add = 0;
  double memory_copy = 0;     // std::memcpy of the same number of elements
  double relative_error = 0;  // |x - Q(x)| / |x| for normally distributed x
  double wire_ratio = 0;      // fp32 bytes / encoded bytes, of the same x
};

// Repeats encoding, decoding and copying of `elements` >= 1 fp32 values in turns. It takes about
// `seconds`, and at least three repetitions. It needs up to 16 bytes of memory per element; choose
// more elements than the caches hold. Returns when all is measured; any thread.
CodecMetrics measure_codec(const Codec& codec, size_t elements, double seconds);

}  // namespace ringdist
