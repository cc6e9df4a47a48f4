// Shared helpers of the codec tests: all codec specs of the registry, encode() and decode() with
// checks of the buffer limits, and input values of many kinds. The helpers report failures by
// GoogleTest.
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

// Returns the example specs of every row of the registry. Each one that is not exact also appears
// with "+h", the rotation.
std::vector<std::string> all_specs();

// Turns a spec into a name that GoogleTest accepts: "topk:10+h" becomes "topk_10_h".
std::string test_name(const std::string& spec);

// Returns the codec for a spec, which must be valid.
CodecPtr codec_of(std::string_view spec);

// Encodes `in` and returns the bytes. Checks that encode() stays within max_bytes() and within its
// buffers, by guard bytes around the output.
Memory encode(const Codec& codec, std::span<const float> in, DType dtype, ResidualSpan residual,
              CodecSeed seed);

// Decodes `bytes` to `count` values. Checks that decode() consumes all of them.
Floats decode(const Codec& codec, const Memory& bytes, DType dtype, CodecSeed seed, size_t count);

// Returns values distributed like gradients, rounded to `dtype`. They are normal with another
// scale in each run of 64, and one in eight of these runs is zero.
Floats random_values(size_t count, DType dtype, std::mt19937_64& random);

struct NamedInput {
  std::string name;
  Floats values;
};

// Returns inputs of `count` elements that are finite and difficult for codecs: subnormals, the
// largest floats, sparse values and others.
std::vector<NamedInput> nasty_inputs(size_t count, std::mt19937_64& random);

}  // namespace ringdist::test
