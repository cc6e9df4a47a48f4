// Codec `int2`: 2 bits per element and a signed least-squares scale per 128. int2.spec.md has the
// bytes.
#include <array>
#include <memory>

#include "codec/codec.h"
#include "codec/quantized_codec.h"

namespace ringdist {
namespace {

constexpr uint8_t kWireId = 6;
Result<CodecPtr> make(std::string_view parameter) {
  if (!parameter.empty()) return bad_parameter("int2", parameter, "");
  return CodecPtr(std::make_shared<QuantizedCodec>(QuantizedTraits{.name = "int2",
                                                                   .wire_id = kWireId,
                                                                   .parameters = 0,
                                                                   .format = BlockFormat::kInt2,
                                                                   .feedback_by_default = true}));
}

constexpr std::array<std::string_view, 1> kExamples{"int2"};

}  // namespace

CodecRow int2_row() { return {"int2", kWireId, "2 bits and a scale per 128", "", kExamples, make}; }

}  // namespace ringdist
