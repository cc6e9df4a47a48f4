// Codec `int4`: 4 bits per element and a signed least-squares scale per 128. int4.spec.md has the
// bytes.
#include <array>
#include <memory>

#include "codec/codec.h"
#include "codec/quantized_codec.h"

namespace ringdist {
namespace {

constexpr uint8_t kWireId = 5;
Result<CodecPtr> make(std::string_view parameter) {
  if (!parameter.empty()) return bad_parameter("int4", parameter, "");
  return CodecPtr(std::make_shared<QuantizedCodec>(QuantizedTraits{.name = "int4",
                                                                   .wire_id = kWireId,
                                                                   .parameters = 0,
                                                                   .format = BlockFormat::kInt4,
                                                                   .feedback_by_default = true}));
}

constexpr std::array<std::string_view, 1> kExamples{"int4"};

}  // namespace

CodecRow int4_row() { return {"int4", kWireId, "4 bits and a scale per 128", "", kExamples, make}; }

}  // namespace ringdist
