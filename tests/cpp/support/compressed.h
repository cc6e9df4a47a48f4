// Shared helpers of the tests of compressed ops: a tensor of any float dtype, gradients and codec
// maps.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codec/codec_map.h"
#include "kernel/cast.h"
#include "support/requests.h"

namespace ringdist {

// Parameters of a compressed allreduce under test.
struct CompressedCase {
  std::string codec;
  const char* algorithm = "direct";
  int size = 3;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

inline std::string coded_case_name(const testing::TestParamInfo<CompressedCase>& info) {
  const CompressedCase& c = info.param;
  std::string out = c.codec + "_" + c.algorithm + "_" + std::to_string(c.size) + "_" +
                    std::string(dtype_name(c.dtype)) + "_" + std::string(reduce_op_name(c.op));
  for (char& letter : out)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return out;
}

// The tensor of one rank, with conversion from and to float.
class Tensor {
 public:
  Tensor(DType dtype, size_t count) : dtype_(dtype), bytes_(count * dtype_size(dtype)) {}
  void set(std::span<const float> values) { narrow(dtype_, values, bytes_); }
  std::vector<float> values() const {
    std::vector<float> out(bytes_.size() / dtype_size(dtype_));
    widen(dtype_, bytes_, out);
    return out;
  }
  OpRequest request(ReduceOp op) {
    OpRequest out = allreduce_request(bytes_, dtype_, op);
    out.count = static_cast<int64_t>(bytes_.size() / dtype_size(dtype_));
    out.output = Buffer(dtype_size(dtype_));
    out.output.append(bytes_.data(), out.count);
    return out;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

// Returns a map of three parameters: the codec under test, an uncompressed one, and the codec
// again.
inline std::shared_ptr<CodecMap> make_map(const std::string& codec, int size, int64_t count,
                                          std::vector<float>* residual,
                                          std::vector<float>* next = nullptr) {
  auto map = std::make_shared<CodecMap>();
  const CodecPair pair = parse_codec_pair(codec, size).value();
  const CodecPair plain = parse_codec_pair("none", size).value();
  for (const auto& [length, codecs] :
       {std::pair{count / 3, pair}, {int64_t{257}, plain}, {count - count / 3 - 257, pair}}) {
    float* at = residual ? residual->data() + map->count() : nullptr;
    float* to = next ? next->data() + map->count() : nullptr;
    map->parts.push_back({map->count(), length, codecs, at, to});
  }
  return map;
}

// Returns a map with one parameter over the whole buffer.
inline std::shared_ptr<CodecMap> whole_map(const std::string& codec, int size, int64_t count,
                                           float* residual = nullptr) {
  auto map = std::make_shared<CodecMap>();
  map->parts.push_back({0, count, parse_codec_pair(codec, size).value(), residual});
  return map;
}

inline std::vector<float> gradient(uint64_t seed, int rank, int step, size_t count) {
  std::mt19937_64 random(seed + static_cast<uint64_t>(rank * 1000 + step));
  std::normal_distribution<float> normal(0.1f, 1.0f);
  std::vector<float> out(count);
  for (float& x : out) x = normal(random);
  return out;
}

}  // namespace ringdist
