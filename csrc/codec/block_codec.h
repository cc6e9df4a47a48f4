// Base class of codecs that encode block by block, and helpers for them. The size of an encoded
// block depends only on its number of elements. Derived classes pass their blocks to the loops in
// kernel/. Immutable; any thread.
#pragma once

#include <string>

#include "codec/codec.h"
#include "kernel/counter_rng.h"

namespace ringdist {

// Implements the functions of Codec that all block codecs share, on top of three virtual functions.
class BlockCodec : public Codec {
 public:
  std::string_view name() const final { return name_; }
  uint8_t wire_id() const final { return wire_id_; }
  uint16_t wire_parameters() const final { return parameters_; }
  int64_t block() const final { return block_; }
  double bits() const final {
    return 8.0 * static_cast<double>(block_bytes(block_)) / static_cast<double>(block_);
  }
  bool supports(DType dtype) const final { return dtype == DType::kFloat32 || is_half(dtype); }

  // Returns the exact size of every encoding of `count` elements: whole blocks, then the tail.
  size_t max_bytes(int64_t count, DType dtype) const final;
  size_t encode(std::span<const float> in, DType dtype, ResidualSpan residual, CodecSeed seed,
                Bytes out) const final;
  Result<size_t> decode(ConstBytes in, DType dtype, CodecSeed seed, bool accumulate,
                        std::span<float> out) const final;

 protected:
  // `parameters` are the bits for the frame header, and `block` is the number of elements that
  // share a scale.
  BlockCodec(std::string name, uint8_t wire_id, uint16_t parameters, int64_t block)
      : name_(std::move(name)), block_(block), parameters_(parameters), wire_id_(wire_id) {}

  // Returns the size in bytes of one block of 1 <= count <= block() elements. It must depend on
  // nothing else, so that a receiver can compute it.
  virtual size_t block_bytes(int64_t count) const = 0;
  // Implement Codec::encode and Codec::decode for any count of elements, 0 included. `residual` is
  // empty or as long as `in`. The encoded span has exactly the size that the count requires. Its
  // bytes may be anything in decode_blocks(), which returns kProtocol for those that have no
  // meaning.
  virtual void encode_blocks(std::span<const float> in, ResidualSpan residual, CodecSeed seed,
                             Bytes out) const = 0;
  virtual Error decode_blocks(ConstBytes in, CodecSeed seed, bool accumulate,
                              std::span<float> out) const = 0;

 private:
  std::string name_;
  int64_t block_;
  uint16_t parameters_;
  uint8_t wire_id_;
};

// Bits of wire_parameters(). The 12 low bits belong to the codec.
inline constexpr uint16_t kRotationBit = 1 << 15;
inline constexpr uint16_t kStochasticBit = 1 << 14;

// Returns the key of stochastic rounding. It differs between encoders, so that their rounding
// errors are independent and average out, and repeats with the seed.
inline uint64_t rounding_key(CodecSeed seed) { return random_at(seed.shared, seed.own); }

// Returns a kInvalidArgument error. If `accepted` is "", it reads "codec 'int4' takes no parameter,
// got 'x'". Otherwise it reads "codec 'fp8': parameter 'x' is not known; have: e4m3, e5m2".
Error bad_parameter(std::string_view codec, std::string_view given, std::string_view accepted);

}  // namespace ringdist
