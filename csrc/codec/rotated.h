// "+h": a seeded Hadamard rotation of each block in front of another codec.
#pragma once

#include <array>
#include <string>

#include "codec/codec.h"

namespace ringdist {

// Errors (kInvalidArgument): an exact codec, which a rotation would make inexact; a rotated one.
Result<CodecPtr> rotate(CodecPtr inner);

// A codec behind a rotation: see rotated.h and rotated.spec.md. For codecs that know a faster way
// through a chunk to derive from.
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
  static constexpr size_t kChunk = Codec::kMaxBlock;  // whole blocks of any codec

  // As encode() and decode(), of at most kChunk elements. `signs` has a bit for each.
  virtual size_t encode_chunk(std::span<const float> in, DType dtype, ResidualSpan residual,
                              CodecSeed seed, const std::byte* signs, Bytes out) const;
  virtual Result<size_t> decode_chunk(ConstBytes in, DType dtype, CodecSeed seed,
                                      const std::byte* signs, bool accumulate,
                                      std::span<float> out) const;

 private:
  using Chunk = std::array<float, kChunk>;
  Result<size_t> decode_values(ConstBytes in, DType dtype, CodecSeed seed, const std::byte* signs,
                               std::span<float> out) const;

  CodecPtr inner_;
  std::string name_;
  size_t block_;
};

// `onebit+h`, the default of `onebit`: same bytes as RotatedCodec, by loops that do rotation and
// signs together.

// `onebit` is what parse_codec("onebit") gives. Needs rotated_sign_loops().
CodecPtr rotate_onebit(CodecPtr onebit);

}  // namespace ringdist
