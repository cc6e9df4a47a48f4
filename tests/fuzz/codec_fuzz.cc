// The target of `make fuzz`: any bytes, decoded by any codec (libFuzzer calls this).
#include <cstddef>
#include <cstdint>

#include "support/decode_any.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // -1: not an input that is worth keeping.
  return ringdist::test::decode_any({data, size}) ? 0 : -1;
}
