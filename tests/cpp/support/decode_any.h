// Entry point of the fuzzer of codecs (`make fuzz`), shared with the tests that replay the inputs
// of its corpus.
#pragma once

#include <cstdint>
#include <span>

namespace ringdist::test {

// Decodes arbitrary bytes, laid out as follows.
//
// byte 0: wire id of the codec
//
// byte 1: number of the example in the codec's row
//
// byte 2: flags. Bit 0 is rotated, bit 1 accumulate, bit 2 in a frame, bits 3-4 fp32, bf16 or
// fp16.
//
// bytes 3-4: number of elements, little endian
//
// the rest: bytes to decode
//
// Returns false if the input selects no codec. Ends the process if a codec violates its contract.
// Accesses outside the buffers are left for a sanitizer to detect.
bool decode_any(std::span<const uint8_t> input);

}  // namespace ringdist::test
