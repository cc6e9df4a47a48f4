// What tests of codecs share: every spec of the registry, encoding with guards around the output,
// values of many kinds.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codec/codec.h"

namespace ringdist::test {

using Floats = std::vector<float>;
using Memory = std::vector<std::byte>;

// The examples of every row, each also with "+h" unless it is exact.
std::vector<std::string> all_specs();

// `spec` as a name that GoogleTest accepts: "topk:10+h" is "topk_10_h".
std::string test_name(const std::string& spec);

// The codec of a spec that must be right.
CodecPtr codec_of(std::string_view spec);

// The bytes that encode() used, after checks that it stayed within max_bytes() and its buffers.
Memory encode(const Codec& codec, std::span<const float> in, DType dtype, ResidualSpan residual,
              CodecSeed seed);

// What `bytes` decode to, after checks that all of them were used.
Floats decode(const Codec& codec, const Memory& bytes, DType dtype, CodecSeed seed, size_t count);

// Elements as gradients are: normal, of another size in each run of 64, one in eight of these zero;
// rounded to `dtype`.
Floats random_values(size_t count, DType dtype, std::mt19937_64& random);

struct NamedInput {
  std::string name;
  Floats values;
};

// Finite and nasty, `count` elements each: subnormals, the largest floats, sparse ones, ...
std::vector<NamedInput> nasty_inputs(size_t count, std::mt19937_64& random);

}  // namespace ringdist::test
