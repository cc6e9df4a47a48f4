// Codec `bf16`: the upper half of a float. bf16.spec.md has the bytes.
#include <array>
#include <memory>

#include "codec/block_codec.h"
#include "codec/codec.h"
#include "kernel/cast.h"
#include "kernel/round16.h"

namespace ringdist {
namespace {

constexpr uint8_t kWireId = 2;
constexpr std::string_view kStochastic = "stochastic";

class BF16Codec final : public BlockCodec {
 public:
  explicit BF16Codec(bool stochastic)
      : BlockCodec(stochastic ? "bf16:stochastic" : "bf16", kWireId,
                   stochastic ? kStochasticBit : uint16_t{0}, 1),
        stochastic_(stochastic) {}
  // It is a contraction except for x without an element above 2^-134, which is sent as 0. With
  // stochastic rounding, values that underflow may grow. The spec has the details.
  bool keeps_values() const override { return true; }
  bool contraction() const override { return !stochastic_; }

 protected:
  size_t block_bytes(int64_t count) const override {
    return static_cast<size_t>(count) * sizeof(uint16_t);
  }
  void encode_blocks(std::span<const float> in, ResidualSpan residual, CodecSeed seed,
                     Bytes out) const override {
    round16().to_bfloat(in, residual, {stochastic_, rounding_key(seed)}, out);
  }
  Error decode_blocks(ConstBytes in, CodecSeed, bool accumulate,
                      std::span<float> out) const override {
    (accumulate ? widen_add : widen)(DType::kBFloat16, in, out);
    return {};
  }

 private:
  bool stochastic_;
};

Result<CodecPtr> make(std::string_view parameter) {
  const bool stochastic = parameter == kStochastic;
  if (!stochastic && !parameter.empty()) return bad_parameter("bf16", parameter, kStochastic);
  return CodecPtr(std::make_shared<BF16Codec>(stochastic));
}

constexpr std::array<std::string_view, 2> kExamples{"bf16", "bf16:stochastic"};

}  // namespace

CodecRow bf16_row() {
  return {"bf16",    kWireId, "the upper half of a float", "stochastic: rounds at random, unbiased",
          kExamples, make};
}

}  // namespace ringdist
