#include "codec/none.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernel/reduce.h"

namespace ringdist {
namespace {

class NoneCodec final : public Codec {
 public:
  std::string_view name() const override { return "none"; }
  bool identity() const override { return true; }
  bool supports(DType) const override { return true; }
  size_t max_bytes(int64_t count, DType dtype) const override {
    return static_cast<size_t>(count) * dtype_size(dtype);
  }

  size_t encode(ConstBytes in, DType, std::span<float> residual, Bytes out) const override {
    std::memcpy(out.data(), in.data(), in.size());
    std::fill(residual.begin(), residual.end(), 0.0f);  // nothing is lost
    return in.size();
  }

  Error decode(ConstBytes in, DType dtype, bool accumulate, Bytes out) const override {
    if (in.size() != out.size())
      return Error(ErrorKind::kProtocol, "codec none: " + std::to_string(in.size()) +
                                             " bytes arrived where " + std::to_string(out.size()) +
                                             " were expected");
    if (accumulate) {
      const std::array<const std::byte*, 2> sources{out.data(), in.data()};
      reduce(dtype, ReduceOp::kSum, out.data(), sources, out.size() / dtype_size(dtype), 1);
    } else if (!in.empty()) {
      std::memcpy(out.data(), in.data(), in.size());
    }
    return {};
  }
};

}  // namespace

const Codec& none_codec() {
  static const NoneCodec codec;
  return codec;
}

}  // namespace ringdist
