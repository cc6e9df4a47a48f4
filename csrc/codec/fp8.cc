// Codec `fp8`: 8-bit floats with a scale per 128, computed from the largest magnitude. fp8.spec.md
// has the bytes.
#include <array>
#include <memory>

#include "codec/codec.h"
#include "codec/quantized_codec.h"

namespace ringdist {
namespace {

constexpr uint8_t kWireId = 3;
constexpr uint16_t kE4M3Parameter = 0;
constexpr uint16_t kE5M2Parameter = 1;

Result<CodecPtr> make(std::string_view parameter) {
  const bool e5m2 = parameter == "e5m2";
  if (!e5m2 && parameter != "e4m3" && !parameter.empty())
    return bad_parameter("fp8", parameter, "e4m3, e5m2");
  return CodecPtr(std::make_shared<QuantizedCodec>(
      QuantizedTraits{.name = e5m2 ? "fp8:e5m2" : "fp8",
                      .wire_id = kWireId,
                      .parameters = e5m2 ? kE5M2Parameter : kE4M3Parameter,
                      .format = e5m2 ? BlockFormat::kFp8E5M2 : BlockFormat::kFp8E4M3}));
}

constexpr std::array<std::string_view, 2> kExamples{"fp8", "fp8:e5m2"};

}  // namespace

CodecRow fp8_row() {
  return {"fp8",     kWireId, "8-bit floats and a scale per 128", "e4m3 (default) or e5m2",
          kExamples, make};
}

}  // namespace ringdist
