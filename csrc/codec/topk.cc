// Codec `topk`: the k of 1024 elements that are largest in magnitude (A. F. Aji, K. Heafield,
// "Sparse communication for distributed gradient descent", 2017; block by block here). topk.spec.md
// has the bytes.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "codec/block_codec.h"
#include "codec/codec.h"
#include "codec/sparse_fraction.h"
#include "kernel/select.h"
#include "kernel/topk_pair.h"

namespace ringdist {
namespace {

constexpr uint8_t kWireId = 8;
static_assert(kSelectBlock == kSparseBlock);
constexpr uint32_t kInfinity = 0x7f800000;

using Entry = TopkPair;

class TopkCodec final : public BlockCodec {
 public:
  explicit TopkCodec(int k)
      : BlockCodec("topk:" + std::to_string(k), kWireId, static_cast<uint16_t>(k), kSparseBlock),
        k_(static_cast<size_t>(k)) {}
  bool contraction() const override { return true; }
  bool feedback_by_default() const override { return true; }

 protected:
  size_t block_bytes(int64_t count) const override {
    return kept_count(static_cast<size_t>(count), k_) * sizeof(Entry);
  }

  void encode_blocks(std::span<const float> in, ResidualSpan residual, CodecSeed,
                     Bytes out) const override {
    std::byte* to = out.data();
    for (size_t at = 0; at < in.size(); at += kSelectBlock) {
      const size_t n = std::min(kSelectBlock, in.size() - at);
      encode_block(in.data() + at, n, residual.subspan(at, n), to);
      to += block_bytes(static_cast<int64_t>(n));
    }
  }

  Error decode_blocks(ConstBytes in, CodecSeed, bool accumulate,
                      std::span<float> out) const override {
    const std::byte* from = in.data();
    for (size_t at = 0; at < out.size(); at += kSelectBlock) {
      const std::span<float> to = out.subspan(at, std::min(kSelectBlock, out.size() - at));
      if (Error error = decode_block(from, accumulate, to)) return error;
      from += block_bytes(static_cast<int64_t>(to.size()));
    }
    return {};
  }

 private:
  void encode_block(const float* in, size_t count, ResidualSpan residual, std::byte* out) const {
    std::array<float, kSelectBlock> sum;
    std::array<uint16_t, kSelectBlock + 1> indices;
    const size_t k = kept_count(count, k_);
    const uint32_t largest = sum_block(in, residual.from, count, sum.data());
    if (largest >= kInfinity) {
      constexpr Entry kPoison = Entry::poison();
      for (size_t j = 0; j < k; ++j)
        std::memcpy(out + j * sizeof kPoison, &kPoison, sizeof kPoison);
      return residual.keep();
    }
    select_largest(sum.data(), count, k, largest, indices.data());
    // An element that is not sent is lost as a whole.
    if (!residual.empty()) std::copy_n(sum.begin(), count, residual.to);
    for (size_t j = 0; j < k; ++j) {
      const float x = sum[indices[j]];
      const Entry entry = Entry::of(indices[j], x);
      std::memcpy(out + j * sizeof entry, &entry, sizeof entry);
      if (!residual.empty()) residual.to[indices[j]] = x - entry.decoded();
    }
  }

  // Decodes one block. Indices must ascend, because an element that occurs twice would be added
  // twice.
  Error decode_block(const std::byte* in, bool accumulate, std::span<float> out) const {
    const size_t k = kept_count(out.size(), k_);
    if (!accumulate) std::fill(out.begin(), out.end(), 0.0f);
    int previous = -1;
    for (size_t j = 0; j < k; ++j) {
      Entry entry;
      std::memcpy(&entry, in + j * sizeof entry, sizeof entry);
      if (entry.is_poison()) {
        std::fill(out.begin(), out.end(), std::numeric_limits<float>::quiet_NaN());
        return {};
      }
      const int index = entry.index();
      if (index <= previous || static_cast<size_t>(index) >= out.size())
        return Error(ErrorKind::kProtocol, "codec " + std::string(name()) + ": element " +
                                               std::to_string(index) + " after " +
                                               std::to_string(previous) + " in a block of " +
                                               std::to_string(out.size()));
      out[static_cast<size_t>(index)] += entry.decoded();
      previous = index;
    }
    return {};
  }

  size_t k_;
};

Result<CodecPtr> make(std::string_view parameter) {
  Result<int> k = parse_fraction("topk", parameter);
  if (!k.ok()) return k.error();
  return CodecPtr(std::make_shared<TopkCodec>(k.value()));
}

// Sums have more nonzero elements than contributions. If results kept only k elements, training
// would diverge.
std::string result_of(std::string_view contribution, int size) {
  const int k = std::stoi(std::string(contribution.substr(contribution.find(':') + 1)));
  const int kept = std::min(k * std::min(4, size), static_cast<int>(Codec::kMaxBlock));
  return "topk:" + std::to_string(kept);
}

constexpr std::array<std::string_view, 3> kExamples{"topk:10", "topk:40", "topk:256"};

}  // namespace

CodecRow topk_row() {
  return {"topk", kWireId,  "the k largest of each 1024", kFractionText, kExamples, make,
          {},     result_of};
}

}  // namespace ringdist
