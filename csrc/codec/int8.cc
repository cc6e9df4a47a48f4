// Codec `int8`: 8 bits per element with a scale per 128, computed from the largest magnitude.
// int8.spec.md has the bytes.
#include <array>
#include <memory>

#include "codec/codec.h"
#include "codec/quantized_codec.h"

namespace ringdist {
namespace {

constexpr uint8_t kWireId = 4;
constexpr std::string_view kStochastic = "stochastic";

Result<CodecPtr> make(std::string_view parameter) {
  const bool stochastic = parameter == kStochastic;
  if (!stochastic && !parameter.empty()) return bad_parameter("int8", parameter, kStochastic);
  return CodecPtr(std::make_shared<QuantizedCodec>(
      QuantizedTraits{.name = stochastic ? "int8:stochastic" : "int8",
                      .wire_id = kWireId,
                      .parameters = stochastic ? kStochasticBit : uint16_t{0},
                      .format = BlockFormat::kInt8,
                      .stochastic = stochastic}));
}

constexpr std::array<std::string_view, 2> kExamples{"int8", "int8:stochastic"};

}  // namespace

CodecRow int8_row() {
  return {
      "int8",    kWireId, "8 bits and a scale per 128", "stochastic: rounds at random, unbiased",
      kExamples, make};
}

}  // namespace ringdist
