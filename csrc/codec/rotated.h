// Codecs with "+h": a seeded Hadamard rotation of each block precedes another codec. The rotation
// spreads large values over the block, so that a common scale fits all of them better. Immutable;
// any thread.
#pragma once

#include <array>
#include <string>

#include "codec/codec.h"

namespace ringdist {

// Returns a rotated codec. Error: kInvalidArgument, for an exact codec, which a rotation would make
// inexact, and for a codec that is rotated already.
Result<CodecPtr> rotate(CodecPtr inner);

// Codec behind a rotation; rotated.spec.md has the details. Codecs with a faster implementation for
// a chunk derive from it.
class RotatedCodec : public Codec {
 public:
  explicit RotatedCodec(CodecPtr inner);

  std::string_view name() const final { return name_; }
  uint8_t wire_id() const final { return inner_->wire_id(); }
  uint16_t wire_parameters() const final;
  bool contraction() const final { return inner_->contraction(); }
  bool keeps_values() const final { return inner_->keeps_values(); }
  bool feedback_by_default() const final { return inner_->feedback_by_default(); }
  int64_t block() const final { return static_cast<int64_t>(block_); }
  double bits() const final { return inner_->bits(); }
  bool supports(DType dtype) const final { return inner_->supports(dtype); }
  size_t max_bytes(int64_t count, DType dtype) const final {
    return inner_->max_bytes(count, dtype);
  }

  size_t encode(std::span<const float> in, DType dtype, ResidualSpan residual, CodecSeed seed,
                Bytes out) const final;
  Result<size_t> decode(ConstBytes in, DType dtype, CodecSeed seed, bool accumulate,
                        std::span<float> out) const final;

 protected:
  static constexpr size_t kChunk = Codec::kMaxBlock;  // elements; whole blocks of any codec

  // Encode and decode at most kChunk elements, like encode() and decode(). `signs` has one bit per
  // element, set where the rotation changes its sign. `seed` is that of the chunk.
  virtual size_t encode_chunk(std::span<const float> in, DType dtype, ResidualSpan residual,
                              CodecSeed seed, const std::byte* signs, Bytes out) const;
  virtual Result<size_t> decode_chunk(ConstBytes in, DType dtype, CodecSeed seed,
                                      const std::byte* signs, bool accumulate,
                                      std::span<float> out) const;

 private:
  using Chunk = std::array<float, kChunk>;
  // Decodes at most kChunk elements with the inner codec and rotates them back in `out`.
  Result<size_t> decode_values(ConstBytes in, DType dtype, CodecSeed seed, const std::byte* signs,
                               std::span<float> out) const;

  CodecPtr inner_;
  std::string name_;
  size_t block_;  // elements of a whole rotation
};

// Returns `onebit+h`, the default of `onebit`. It gives the same bytes as RotatedCodec, but its
// loops do rotation and signs together. `onebit` is the result of parse_codec("onebit"). Requires
// rotated_sign_loops().
CodecPtr rotate_onebit(CodecPtr onebit);

}  // namespace ringdist
