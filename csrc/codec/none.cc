// Codec `none`: values as the op's dtype stores them. It serves parameters that stay uncompressed
// in an op that compresses others.
#include "codec/none.h"

#include <algorithm>
#include <array>
#include <string>

#include "codec/codec.h"
#include "kernel/cast.h"
#include "kernel/feedback.h"

namespace ringdist {
namespace {

constexpr uint8_t kWireId = 0;
class NoneCodec final : public Codec {
 public:
  std::string_view name() const override { return kNoCodec; }
  uint8_t wire_id() const override { return kWireId; }
  bool exact() const override { return true; }
  bool contraction() const override { return true; }
  double bits() const override { return 32; }
  bool supports(DType dtype) const override { return dtype == DType::kFloat32 || is_half(dtype); }
  size_t max_bytes(int64_t count, DType dtype) const override {
    return static_cast<size_t>(count) * dtype_size(dtype);
  }

  size_t encode(std::span<const float> in, DType dtype, ResidualSpan residual, CodecSeed,
                Bytes out) const override {
    const size_t size = max_bytes(static_cast<int64_t>(in.size()), dtype);
    if (residual.empty()) {
      narrow(dtype, in, out);
      return size;
    }
    if (dtype == DType::kFloat32) {
      pay_in_full(in, residual, out);
      return size;
    }
    std::array<float, kMaxBlock> sum;
    const size_t element = dtype_size(dtype);
    for (size_t at = 0; at < in.size(); at += sum.size()) {
      const size_t n = std::min(sum.size(), in.size() - at);
      const std::span<float> values = std::span(sum).first(n);
      const ResidualSpan lost = residual.subspan(at, n);
      for (size_t i = 0; i < n; ++i) values[i] = in[at + i] + lost.from[i];
      narrow(dtype, values, out.subspan(at * element, n * element));
      take_loss(dtype, values, out.subspan(at * element, n * element), lost);
    }
    return size;
  }

  Result<size_t> decode(ConstBytes in, DType dtype, CodecSeed, bool accumulate,
                        std::span<float> out) const override {
    const size_t size = max_bytes(static_cast<int64_t>(out.size()), dtype);
    if (in.size() < size)
      return Error(ErrorKind::kProtocol, "codec none: " + std::to_string(in.size()) +
                                             " bytes where " + std::to_string(size) +
                                             " were expected");
    if (accumulate)
      widen_add(dtype, in.first(size), out);
    else
      widen(dtype, in.first(size), out);
    return size;
  }

 private:
  // Computes the new residual: values - stored. Where that is not finite, because a value is not or
  // has become inf by rounding, the residual stays.
  static void take_loss(DType dtype, std::span<const float> values, ConstBytes stored,
                        ResidualSpan residual) {
    std::array<float, kMaxBlock> back;
    widen(dtype, stored, std::span(back).first(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const float loss = values[i] - back[i];
      residual.to[i] = is_finite(loss) ? loss : residual.from[i];
    }
  }
};

Result<CodecPtr> make(std::string_view parameter) {
  if (!parameter.empty())
    return Error(ErrorKind::kInvalidArgument,
                 "codec 'none' takes no parameter, got '" + std::string(parameter) + "'");
  return CodecPtr(std::make_shared<NoneCodec>());
}

constexpr std::array<std::string_view, 1> kExamples{kNoCodec};

}  // namespace

const Codec& no_codec() {
  static const NoneCodec codec;
  return codec;
}

CodecRow none_row() { return {kNoCodec, kWireId, "values as they are", "", kExamples, make}; }

}  // namespace ringdist
