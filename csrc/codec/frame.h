// A frame: one encoded run of elements, with the 8 bytes in front that say what it is.
//
//   byte 0     version of the format, 1
//   byte 1     wire id of the codec
//   bytes 2-3  its parameters, little endian
//   bytes 4-7  count of elements, little endian
#pragma once

#include "codec/codec.h"

namespace ringdist {

inline constexpr size_t kFrameHeaderBytes = 8;

size_t max_frame_bytes(const Codec& codec, int64_t count, DType dtype);

// As Codec::encode, with the header. in.size() < 2^32.
size_t encode_frame(const Codec& codec, std::span<const float> in, DType dtype,
                    ResidualSpan residual, CodecSeed seed, Bytes out);

// As Codec::decode. An Error (kProtocol) if the header is not that of `codec` and of out.size()
// elements.
Result<size_t> decode_frame(const Codec& codec, ConstBytes in, DType dtype, CodecSeed seed,
                            bool accumulate, std::span<float> out);

}  // namespace ringdist
