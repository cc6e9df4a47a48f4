// What `make fuzz` does with its inputs, and what the tests do with those it once found
// interesting.
#pragma once

#include <cstdint>
#include <span>

namespace ringdist::test {

// Decodes arbitrary bytes:
//
//   byte 0     wire id of the codec
//   byte 1     which of the examples of its row
//   byte 2     bit 0: rotated; bit 1: accumulate; bit 2: in a frame; bits 3-4: fp32, bf16, fp16
//   bytes 3-4  count of elements, little endian
//   the rest   to decode
//
// Returns false if the input names no codec. Ends the process if a codec breaks its word; reads
// outside its buffers are for a sanitizer to see.
bool decode_any(std::span<const uint8_t> input);

}  // namespace ringdist::test
