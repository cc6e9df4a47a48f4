// Codec `randomk`: k random elements of each 1024. They are the same on every rank, so the codec is
// linear up to rounding. A sum of decoded values has no other nonzero elements, and encoding it
// again loses only the bits that bf16 cannot hold (S. Stich et al., "Sparsified SGD with memory",
// 2018). randomk.spec.md has the bytes.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "codec/block_codec.h"
#include "codec/codec.h"
#include "codec/sparse_fraction.h"
#include "kernel/cast.h"
#include "kernel/counter_rng.h"
#include "kernel/half.h"
#include "kernel/select.h"

namespace ringdist {
namespace {

constexpr uint8_t kWireId = 9;
using Indices = std::array<uint16_t, kSparseBlock>;

// Draws k distinct indices below `count`, ascending. It is R. Floyd's method (Bentley, "A sample of
// brilliance", 1987), which needs k random numbers and no list of `count` indices. The bit set
// gives the order without sorting.
void draw(uint64_t key, size_t count, size_t k, Indices& out) {
  std::array<uint64_t, kSparseBlock / 64> chosen{};
  const auto bit = [](size_t i) { return uint64_t{1} << (i % 64); };
  for (size_t last = count - k; last < count; ++last) {
    const uint64_t random = random_at(key, last) >> 32;
    const size_t drawn = random * (last + 1) >> 32;
    const size_t taken = (chosen[drawn / 64] & bit(drawn)) != 0 ? last : drawn;
    chosen[taken / 64] |= bit(taken);
  }
  size_t found = 0;
  for (size_t word = 0; word < chosen.size(); ++word)
    for (uint64_t rest = chosen[word]; rest != 0; rest &= rest - 1)
      out[found++] = static_cast<uint16_t>(64 * word + static_cast<size_t>(std::countr_zero(rest)));
}

class RandomkCodec final : public BlockCodec {
 public:
  explicit RandomkCodec(int k)
      : BlockCodec("randomk:" + std::to_string(k), kWireId, static_cast<uint16_t>(k), kSparseBlock),
        k_(static_cast<size_t>(k)) {}
  // It is a contraction only on average, because a block may have zeros at all chosen indices.
  bool contraction() const override { return false; }

 protected:
  size_t block_bytes(int64_t count) const override {
    return kept_count(static_cast<size_t>(count), k_) * sizeof(uint16_t);
  }

  void encode_blocks(std::span<const float> in, ResidualSpan residual, CodecSeed seed,
                     Bytes out) const override {
    std::byte* to = out.data();
    for (size_t at = 0; at < in.size(); at += kSparseBlock) {
      const size_t n = std::min<size_t>(kSparseBlock, in.size() - at);
      encode_block(in.data() + at, n, residual.subspan(at, n),
                   random_at(seed.shared, at / kSparseBlock), to);
      to += block_bytes(static_cast<int64_t>(n));
    }
  }

  Error decode_blocks(ConstBytes in, CodecSeed seed, bool accumulate,
                      std::span<float> out) const override {
    const std::byte* from = in.data();
    for (size_t at = 0; at < out.size(); at += kSparseBlock) {
      const std::span<float> to = out.subspan(at, std::min<size_t>(kSparseBlock, out.size() - at));
      decode_block(from, random_at(seed.shared, at / kSparseBlock), accumulate, to);
      from += block_bytes(static_cast<int64_t>(to.size()));
    }
    return {};
  }

 private:
  void encode_block(const float* in, size_t count, ResidualSpan residual, uint64_t key,
                    std::byte* out) const {
    std::array<float, kSparseBlock> sum;
    Indices indices;
    const size_t k = kept_count(count, k_);
    // All values are tested, also those that are not drawn, so that a NaN reaches all ranks.
    const bool finite = sum_block(in, residual.from, count, sum.data()) < 0x7f800000;
    draw(key, count, k, indices);
    if (!finite)
      residual.keep();
    else if (!residual.empty())
      std::copy_n(sum.begin(), count, residual.to);
    for (size_t j = 0; j < k; ++j) {
      const float x = sum[indices[j]];
      const uint16_t value = finite ? finite_bfloat(x) : kBFloatNaN;
      std::memcpy(out + j * sizeof value, &value, sizeof value);
      if (!residual.empty() && finite) residual.to[indices[j]] = x - bfloat_to_float(value);
    }
  }

  void decode_block(const std::byte* in, uint64_t key, bool accumulate,
                    std::span<float> out) const {
    Indices indices;
    const size_t k = kept_count(out.size(), k_);
    draw(key, out.size(), k, indices);
    if (!accumulate) std::fill(out.begin(), out.end(), 0.0f);
    for (size_t j = 0; j < k; ++j) {
      uint16_t value;
      std::memcpy(&value, in + j * sizeof value, sizeof value);
      const float x = bfloat_to_float(value);
      if (!is_finite(x))
        return std::fill(out.begin(), out.end(), std::numeric_limits<float>::quiet_NaN());
      out[indices[j]] += x;
    }
  }

  size_t k_;
};

Result<CodecPtr> make(std::string_view parameter) {
  Result<int> k = parse_fraction("randomk", parameter);
  if (!k.ok()) return k.error();
  return CodecPtr(std::make_shared<RandomkCodec>(k.value()));
}

constexpr std::array<std::string_view, 2> kExamples{"randomk:10", "randomk:256"};

}  // namespace

CodecRow randomk_row() {
  return {"randomk", kWireId, "k random ones of each 1024", kFractionText, kExamples, make};
}

}  // namespace ringdist
