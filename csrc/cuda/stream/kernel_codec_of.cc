#include "cuda/stream/kernel_codec_of.h"

#include <algorithm>
#include <source_location>

#include "base/check.h"
#include "codec/block_codec.h"

namespace ringdist::gpu {
namespace {

// Maps wire ids of codec/*.spec.md, which are never reused, to kernels. `parameter` has the bits of
// the codec's own parameter.
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

template <typename Call>
void LaunchBatch::add(ByCoding<Call>& to, KernelCodec coding, const Call& call) {
  const auto at = std::ranges::find(to, coding, &std::pair<KernelCodec, std::vector<Call>>::first);
  auto& calls = at != to.end() ? at->second : to.emplace_back(coding, std::vector<Call>()).second;
  calls.push_back(call);
}

template void LaunchBatch::add(ByCoding<EncodeCall>&, KernelCodec, const EncodeCall&);
template void LaunchBatch::add(ByCoding<DecodeCall>&, KernelCodec, const DecodeCall&);

Error LaunchBatch::enqueue(CudaApi& cuda, Stream stream) const {
  for (const auto& [coding, calls] : encodes_)
    if (Error error = cuda.encode(coding, calls, stream)) return error;
  for (const auto& [coding, calls] : decodes_)
    if (Error error = cuda.decode(coding, calls, stream)) return error;
  return elements_.empty() ? Error() : cuda.run(elements_, stream);
}

}  // namespace ringdist::gpu
