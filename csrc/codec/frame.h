// Frame: one encoded run of elements after a header of 8 bytes that describes it. Functions are
// pure; any thread.
//
//   byte 0     version of the format, 1
//   byte 1     wire id of the codec
//   bytes 2-3  parameters of the codec, little endian
//   bytes 4-7  number of elements, little endian
#pragma once

#include "codec/codec.h"

namespace ringdist {

inline constexpr size_t kFrameHeaderBytes = 8;

// Returns an upper limit of the size of a frame in bytes, header included.
size_t max_frame_bytes(const Codec& codec, int64_t count, DType dtype);

// Writes the header and encodes after it like Codec::encode(). `out` has at least max_frame_bytes()
// bytes. Returns the bytes used, header included. in.size() must be less than 2^32.
size_t encode_frame(const Codec& codec, std::span<const float> in, DType dtype,
                    ResidualSpan residual, CodecSeed seed, Bytes out);

// Decodes like Codec::decode() and returns the bytes used, header included. Error: kProtocol, if
// the header does not match `codec` and out.size(), or if the codec refuses the bytes. The caller
// has the codec from the plan, so the header only detects ranks with different plans.
Result<size_t> decode_frame(const Codec& codec, ConstBytes in, DType dtype, CodecSeed seed,
                            bool accumulate, std::span<float> out);

}  // namespace ringdist
