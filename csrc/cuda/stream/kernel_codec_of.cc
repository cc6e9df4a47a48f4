#include "cuda/stream/kernel_codec_of.h"

#include <source_location>

#include "base/check.h"
#include "codec/block_codec.h"

namespace ringdist::gpu {
namespace {

// By the wire ids of codec/*.spec.md, which are never given to another codec. `parameter`: the bits
// that are the codec's own.
std::optional<Code> code_of(uint8_t wire_id, int parameter) {
  switch (wire_id) {
    case 1:
      return Code::kHalf;
    case 2:
      return Code::kBFloat;
    case 3:
      return parameter == 0 ? Code::kFp8E4M3 : Code::kFp8E5M2;
    case 4:
      return Code::kInt8;
    case 5:
      return Code::kInt4;
    case 6:
      return Code::kInt2;
    case 7:
      return Code::kOnebit;
    case 8:
      return Code::kTopk;
    case 9:
      return Code::kRandomk;
    case 10:
      return Code::kLossless;
    case 0:
      return std::nullopt;
    default:
      check_failed("a codec without kernels", std::source_location::current());
  }
}

}  // namespace

std::optional<KernelCodec> kernel_codec_of(const Codec& codec, DType dtype) {
  constexpr uint16_t kOwn = (1 << 12) - 1;
  const uint16_t parameters = codec.wire_parameters();
  const auto code = code_of(codec.wire_id(), parameters & kOwn);
  if (!code) return std::nullopt;
  return KernelCodec{.code = *code,
                     .stochastic = (parameters & kStochasticBit) != 0,
                     .rotated = (parameters & kRotationBit) != 0,
                     .k = parameters & kOwn,
                     .dtype = dtype};
}

}  // namespace ringdist::gpu
