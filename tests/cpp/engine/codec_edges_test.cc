// The executor's codec path, with a codec that only tests have: it inverts all bits and puts a
// length in front, so that any byte that skips it, or is decoded twice, is wrong.
#include <gtest/gtest.h>

#include <cstring>

#include "support/ranks.h"

namespace ringdist {
namespace {

class InvertingCodec final : public Codec {
 public:
  std::string_view name() const override { return "inverting"; }
  bool supports(DType) const override { return true; }
  size_t max_bytes(int64_t count, DType dtype) const override {
    return sizeof(uint32_t) + static_cast<size_t>(count) * dtype_size(dtype);
  }
  size_t encode(ConstBytes in, DType, std::span<float>, Bytes out) const override {
    const auto size = static_cast<uint32_t>(in.size());
    std::memcpy(out.data(), &size, sizeof size);
    for (size_t i = 0; i < in.size(); ++i) out[sizeof size + i] = ~in[i];
    return sizeof size + in.size();
  }
  Error decode(ConstBytes in, DType, bool, Bytes out) const override {
    uint32_t size = 0;
    if (in.size() >= sizeof size) std::memcpy(&size, in.data(), sizeof size);
    if (size != out.size() || in.size() != sizeof size + size)
      return Error(ErrorKind::kProtocol, "codec inverting: a wrong length");
    for (size_t i = 0; i < size; ++i) out[i] = ~in[sizeof size + i];
    return {};
  }
};

class CodecEdges : public testing::TestWithParam<std::tuple<int, const char*>> {};

TEST_P(CodecEdges, EncodeOnEveryEdge) {
  static const InvertingCodec codec;
  const auto [size, algorithm] = GetParam();
  for (bool results_too : {false, true}) {
    RanksOptions options;
    options.size = size;
    options.config = {{"segment_bytes", "4096"}, {"algorithm", algorithm}};
    options.network = {3, std::chrono::microseconds(100)};
    options.contribution_codec = &codec;
    options.result_codec = results_too ? &codec : nullptr;
    Ranks ranks(options);
    ranks.run([&](int rank) {
      std::vector<float> data(20011, static_cast<float>(rank + 1));
      const Error error =
          run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
      ASSERT_FALSE(error) << error.what();
      for (float x : data) ASSERT_EQ(x, static_cast<float>(size * (size + 1) / 2));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, CodecEdges,
                         testing::Combine(testing::Values(2, 3, 5),
                                          testing::Values("ring", "direct")));

}  // namespace
}  // namespace ringdist
