// Of a compressed op: encodes this rank's contribution, decodes and adds those that arrive, encodes
// a sum once for all who want it, and keeps what was lost in the residuals.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <span>
#include <vector>

#include "base/check.h"
#include "codec/codec_map.h"
#include "engine/op/arithmetic.h"
#include "plan/codec_map_pieces.h"

namespace ringdist {

class CompressedArithmetic final : public Arithmetic {
 public:
  CompressedArithmetic(const Op& op, int rank, int size, std::shared_ptr<ScratchPool> pool);

  size_t message_bytes(int step, int64_t segment) const override;
  bool accepts(int step, int64_t segment, size_t bytes) const override {
    return bytes <= message_bytes(step, segment);
  }
  size_t most_bytes(int step) override { return lengths(step).most; }
  size_t mean_bytes(int step) override { return lengths(step).mean; }

  size_t encode(int step, int64_t segment, Bytes out) override;
  ConstBytes view(int step, int64_t segment, PooledBuffer& held) override;

  Error reduce(int step, int64_t segment, std::span<const ConstBytes> arrived,
               PooledBuffer& held) override;
  void reduce_twice(int, int64_t, std::span<const ConstBytes>, Bytes) override {
    check_failed("a sum that is encoded has no twin", std::source_location::current());
  }
  Error place(int step, int64_t segment, ConstBytes arrived, PooledBuffer& held) override;
  // An allgather's copy of the own part: its decoded values take its place.
  Error copy(int step, int64_t segment, PooledBuffer& held) override;

 private:
  struct Piece : CodecMapPiece {
    bool silent;  // all of the part's own values are zero: it sends zeros and keeps its residual

    ResidualSpan residual() const;
    // What a contribution is to be encoded with.
    ResidualSpan take_residual() const;
    template <typename T>
    std::span<T> of(std::span<T> segment) const {
      return segment.subspan(static_cast<size_t>(at), static_cast<size_t>(count));
    }
  };
  using Pieces = std::vector<Piece>;
  enum class Memory { kSum, kOther, kOwn };
  struct Lengths {
    size_t most = 0;
    size_t mean = 0;
  };

  const Lengths& lengths(int step);
  size_t most_bytes(const Pieces& pieces, EdgeKind edge_kind) const;
  const Buffer& buffer(BufferId id) const;
  Pieces pieces(int step, int64_t segment) const;
  std::span<float> memory(Memory which, int64_t count);
  std::span<const float> read(const Range& range, Memory into);
  void write(const Range& range, std::span<const float> values);
  // The elements themselves where fp32 lies in one piece, else empty.
  std::span<float> direct(const Range& range) const;
  void find_silent_parts();
  void add_own(const Piece& piece, bool first, bool raw, std::span<const float> own,
               std::span<float> sum);
  PooledBuffer encode_sum(const Pieces& pieces, EdgeKind edge_kind, std::span<const float> sum,
                          size_t most) const;
  Error store(int step, int64_t segment, ConstBytes bytes);
  Error decode(const Pieces& pieces, EdgeKind edge_kind, ConstBytes bytes, bool accumulate,
               std::span<float> out);
  void keep_losses(const Step& step, const Pieces& pieces, std::span<const float> sum,
                   std::span<const float> stored);

  const Op& op_;
  const CodecMap& map_;
  const int rank_;
  const int size_;
  const std::shared_ptr<ScratchPool> pool_;
  PooledBuffer memory_[3];
  size_t memory_bytes_ = 0;
  std::vector<bool> silent_;        // by part
  std::map<int, Lengths> lengths_;  // by step
  std::vector<std::byte> own_bytes_;
};

}  // namespace ringdist
