// Fuzz target: encodings of all codecs.
#include "fuzz/target.h"
#include "support/decode_any.h"

namespace ringdist::test {
namespace codec_fuzz {

bool run(ConstBytes input) {
  return decode_any({reinterpret_cast<const uint8_t*>(input.data()), input.size()});
}

// The corpus has them, because most of it is older than the other targets.
FuzzSeeds seeds() { return {}; }

}  // namespace codec_fuzz

const FuzzTarget kCodecFuzz{"codec", "csrc/codec/", codec_fuzz::run, codec_fuzz::seeds};

}  // namespace ringdist::test
