// Codec `fp16`: IEEE half precision that saturates. fp16.spec.md has the bytes.
#include <array>
#include <memory>

#include "codec/block_codec.h"
#include "codec/codec.h"
#include "kernel/cast.h"
#include "kernel/round16.h"

namespace ringdist {
namespace {

constexpr uint8_t kWireId = 1;
class Fp16Codec final : public BlockCodec {
 public:
  Fp16Codec() : BlockCodec("fp16", kWireId, 0, 1) {}
  // Values below its range become 0, and values far above it lose nearly everything: see the spec.
  bool keeps_values() const override { return true; }
  bool contraction() const override { return false; }

 protected:
  size_t block_bytes(int64_t count) const override {
    return static_cast<size_t>(count) * sizeof(uint16_t);
  }
  void encode_blocks(std::span<const float> in, ResidualSpan residual, CodecSeed,
                     Bytes out) const override {
    round16().to_half(in, residual, out);
  }
  Error decode_blocks(ConstBytes in, CodecSeed, bool accumulate,
                      std::span<float> out) const override {
    (accumulate ? widen_add : widen)(DType::kFloat16, in, out);
    return {};
  }
};

Result<CodecPtr> make(std::string_view parameter) {
  if (!parameter.empty()) return bad_parameter("fp16", parameter, "");
  return CodecPtr(std::make_shared<Fp16Codec>());
}

constexpr std::array<std::string_view, 1> kExamples{"fp16"};

}  // namespace

CodecRow fp16_row() {
  return {"fp16", kWireId, "half precision, saturating at 65504", "", kExamples, make};
}

}  // namespace ringdist
