// Codecs with a scale and small codes per block of 128 elements: fp8, int8, int4 and int2. They
// differ in the format that they pass to kernel/quantize.h.
#pragma once

#include <string>
#include <utility>

#include "codec/block_codec.h"
#include "kernel/quantize.h"

namespace ringdist {

// Differences between these codecs. `parameters` are the bits of the frame header, and `stochastic`
// is for int8 only.
struct QuantizedTraits {
  std::string name;
  uint8_t wire_id;
  uint16_t parameters;
  BlockFormat format;
  bool stochastic = false;
  bool feedback_by_default = false;
};

// Codec of one format, made from its traits.
class QuantizedCodec final : public BlockCodec {
 public:
  explicit QuantizedCodec(QuantizedTraits traits)
      : BlockCodec(traits.name, traits.wire_id, traits.parameters, kQuantizeBlock),
        traits_(std::move(traits)) {}

  // This holds for all of them, stochastic int8 included. The specs have the proofs.
  bool contraction() const override { return true; }
  // A scale adds 1/8 bit per element, so this is true for fp8 and int8.
  bool keeps_values() const override { return bits() >= 8; }
  bool feedback_by_default() const override { return traits_.feedback_by_default; }

 protected:
  size_t block_bytes(int64_t count) const override {
    return quantized_block_bytes(traits_.format, static_cast<size_t>(count));
  }
  void encode_blocks(std::span<const float> in, ResidualSpan residual, CodecSeed seed,
                     Bytes out) const override {
    const Stochastic rounding{traits_.stochastic, rounding_key(seed)};
    quantize(traits_.format, in, residual, rounding, out);
  }
  Error decode_blocks(ConstBytes in, CodecSeed, bool accumulate,
                      std::span<float> out) const override {
    dequantize(traits_.format, in, accumulate, out);
    return {};
  }

 private:
  QuantizedTraits traits_;
};

}  // namespace ringdist
