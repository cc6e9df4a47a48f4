// Compressed edges of the engine, with a codec that exists in tests only. It inverts all bits and
// adds a length in front, so any byte that is not encoded, or is decoded twice, is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernel/cast.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

class InvertingCodec final : public Codec {
 public:
  std::string_view name() const override { return "inverting"; }
  uint8_t wire_id() const override { return 255; }
  bool contraction() const override { return true; }
  double bits() const override { return 32; }
  bool supports(DType) const override { return true; }
  size_t max_bytes(int64_t count, DType) const override {
    return sizeof(uint32_t) + static_cast<size_t>(count) * sizeof(float);
  }
  size_t encode(std::span<const float> in, DType, ResidualSpan residual, CodecSeed,
                Bytes out) const override {
    const auto size = static_cast<uint32_t>(in.size());
    std::memcpy(out.data(), &size, sizeof size);
    for (size_t i = 0; i < in.size(); ++i) {
      const float value = in[i] + (residual.empty() ? 0 : residual.from[i]);
      const uint32_t bits = ~std::bit_cast<uint32_t>(value);
      std::memcpy(&out[sizeof size + i * sizeof bits], &bits, sizeof bits);
      if (!residual.empty()) residual.to[i] = 0;
    }
    return sizeof size + in.size() * sizeof(float);
  }
  Result<size_t> decode(ConstBytes in, DType, CodecSeed, bool accumulate,
                        std::span<float> out) const override {
    uint32_t size = 0;
    if (in.size() >= sizeof size) std::memcpy(&size, in.data(), sizeof size);
    if (size != out.size() || in.size() < sizeof size + size * sizeof(float))
      return Error(ErrorKind::kProtocol, "codec inverting: a wrong length");
    for (size_t i = 0; i < size; ++i) {
      uint32_t bits;
      std::memcpy(&bits, &in[sizeof size + i * sizeof bits], sizeof bits);
      out[i] = (accumulate ? out[i] : 0) + std::bit_cast<float>(~bits);
    }
    return sizeof size + size * sizeof(float);
  }
};

CodecPtr inverting() {
  static const CodecPtr codec = std::make_shared<InvertingCodec>();
  return codec;
}

CodecPtr none() { return parse_codec("none").value(); }

// Returns parts of odd lengths, one of them empty. Every other part is not compressed.
std::shared_ptr<CodecMap> mixed_map(int64_t count, bool results_too) {
  auto map = std::make_shared<CodecMap>();
  bool plain = false;
  for (const int64_t part : {int64_t{1}, int64_t{0}, int64_t{7001}, count - 7002}) {
    const CodecPtr codec = plain ? none() : inverting();
    map->parts.push_back({map->count(), part, {codec, results_too ? codec : none()}, nullptr});
    plain = !plain;
  }
  return map;
}

RanksOptions options(int size, const char* algorithm) {
  RanksOptions out;
  out.size = size;
  out.config = {{"segment_bytes", "4096"}, {"algorithm", algorithm}};
  out.network = {3, std::chrono::microseconds(100)};
  return out;
}

class CodecEdges : public testing::TestWithParam<std::tuple<int, const char*>> {};

TEST_P(CodecEdges, EncodeOnEveryEdge) {
  const auto [size, algorithm] = GetParam();
  for (bool results_too : {false, true}) {
    Ranks ranks(options(size, algorithm));
    ranks.run([&](int rank) {
      std::vector<float> data(20011, static_cast<float>(rank + 1));
      OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
      request.codec_map = mixed_map(request.count, results_too);
      const Error error = run_op(ranks[rank], std::move(request));
      ASSERT_FALSE(error) << error.what();
      for (float x : data) ASSERT_EQ(x, static_cast<float>(size * (size + 1) / 2));
    });
  }
}

TEST_P(CodecEdges, EncodeAReduceScatterAndAnAllgather) {
  const auto [size, algorithm] = GetParam();
  constexpr int64_t kCount = 5003;
  Ranks ranks(options(size, algorithm));
  ranks.run([&](int rank) {
    auto map = std::make_shared<CodecMap>();
    map->parts.push_back({0, kCount * ranks.size(), {inverting(), inverting()}, nullptr});
    std::vector<float> all(static_cast<size_t>(kCount * ranks.size()));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i % 1000 + rank);
    std::vector<float> mine(kCount);
    OpRequest scatter = allreduce_request(mine, DType::kFloat32, ReduceOp::kSum);
    scatter.kind = Collective::kReduceScatter;
    scatter.input = Buffer(sizeof(float));
    scatter.input.append(all.data(), static_cast<int64_t>(all.size()));
    scatter.codec_map = map;
    Error error = run_op(ranks[rank], std::move(scatter));
    ASSERT_FALSE(error) << error.what();
    const int n = ranks.size();
    for (int64_t i = 0; i < kCount; ++i)
      ASSERT_EQ(mine[i], static_cast<float>((rank * kCount + i) % 1000 * n + n * (n - 1) / 2));

    auto part = std::make_shared<CodecMap>();
    part->parts.push_back({0, kCount, {inverting(), inverting()}, nullptr});
    std::vector<float> gathered(all.size());
    OpRequest gather = allreduce_request(gathered, DType::kFloat32, ReduceOp::kNone);
    gather.kind = Collective::kAllgather;
    gather.count = kCount;
    gather.input = Buffer(sizeof(float));
    gather.input.append(mine.data(), kCount);
    gather.codec_map = part;
    error = run_op(ranks[rank], std::move(gather));
    ASSERT_FALSE(error) << error.what();
    for (int64_t i = 0; i < kCount * n; ++i)
      ASSERT_EQ(gathered[i], static_cast<float>(i % 1000 * n + n * (n - 1) / 2));
  });
}

// The sums have the same order and rounding, so `lossless` trains like no codec.
TEST(ExactCodecs, GiveTheBitsOfAnUncompressedOp) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    constexpr int64_t kCount = 70'003;
    RanksOptions options;
    options.size = 3;
    Ranks ranks(options);
    ranks.run([&](int rank) {
      std::vector<float> values(kCount);
      for (int64_t i = 0; i < kCount; ++i)
        values[i] = std::sin(static_cast<float>(i * (rank + 3))) * 1e-3f;
      std::vector<std::byte> plain(values.size() * dtype_size(dtype));
      narrow(dtype, values, plain);
      std::vector<std::byte> coded = plain;
      const auto reduce = [&](std::vector<std::byte>& data, const CodecPtr& codec) {
        OpRequest request;
        request.kind = Collective::kAllreduce;
        request.dtype = dtype;
        request.reduce_op = ReduceOp::kAvg;
        request.count = kCount;
        request.output = Buffer(dtype_size(dtype));
        request.output.append(data.data(), kCount);
        if (codec) {
          auto map = std::make_shared<CodecMap>();
          map->parts.push_back({0, 5, {none(), none()}, nullptr});
          map->parts.push_back({5, kCount - 5, {codec, codec}, nullptr});
          request.codec_map = map;
        }
        const Error error = run_op(ranks[rank], std::move(request));
        ASSERT_FALSE(error) << error.what();
      };
      reduce(plain, nullptr);
      reduce(coded, parse_codec("lossless").value());
      EXPECT_EQ(plain, coded) << dtype_name(dtype);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, CodecEdges,
                         testing::Combine(testing::Values(2, 3, 5),
                                          testing::Values("ring", "direct")));

}  // namespace
}  // namespace ringdist
