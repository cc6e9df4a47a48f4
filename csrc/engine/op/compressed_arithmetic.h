// Arithmetic of a compressed op. It encodes this rank's contribution, decodes and adds the
// contributions that arrive, and encodes a sum once for all ranks that receive it. The error of
// each encoding is kept in the residuals (error feedback).
//
// A codec map divides the buffer into parts with their own codecs and residuals. A segment may
// cover several parts, so each function works on a list of Pieces. All sums are computed in fp32,
// whatever the dtype of the op.
//
// Threads: the caller holds the lane's progress lock.
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

// Implements Arithmetic for ops with a codec map (float32, bfloat16 or float16).
class CompressedArithmetic final : public Arithmetic {
 public:
  // `op` must outlive this object. Reads this rank's values to find silent parts. In a group of one
  // rank, no bytes are encoded, and all residuals are carried over unchanged.
  CompressedArithmetic(const Op& op, int rank, int size, std::shared_ptr<ScratchPool> pool);

  size_t message_bytes(int step, int64_t segment) const override;
  // Accepts any size up to the bound, because encoded sizes vary. A wrong frame is detected when it
  // is decoded.
  bool accepts(int step, int64_t segment, size_t bytes) const override {
    return bytes <= message_bytes(step, segment);
  }
  size_t most_bytes(int step) override { return lengths(step).most; }
  size_t mean_bytes(int step) override { return lengths(step).mean; }

  size_t encode(int step, int64_t segment, Bytes out) override;
  // Must not be called: a compressed op never sends values unencoded. Fails a check.
  ConstBytes view(int step, int64_t segment, PooledBuffer& held) override;

  Error reduce(int step, int64_t segment, std::span<const ConstBytes> arrived,
               PooledBuffer& held) override;
  // Must not be called, because the sum is sent encoded. Fails a check.
  void reduce_twice(int, int64_t, std::span<const ConstBytes>, Bytes) override {
    check_failed("a sum that is encoded has no twin", std::source_location::current());
  }
  Error place(int step, int64_t segment, ConstBytes arrived, PooledBuffer& held) override;
  // Encodes this rank's part of an allgather for the sends that follow. The decoded values replace
  // the part in the output, so that all ranks end with the same bits.
  Error copy(int step, int64_t segment, PooledBuffer& held) override;

 private:
  // Elements of a segment that belong to one part of the codec map.
  struct Piece : CodecMapPiece {
    bool silent;  // all own values of the part are zero: it sends zeros and keeps its residual

    // Returns the residual of these elements, or an empty span without error feedback.
    ResidualSpan residual() const;
    // Returns the residual to add to the contribution. For a silent part it returns an empty span
    // and carries the residual over unchanged.
    ResidualSpan take_residual() const;
    // Returns the elements of `segment` that belong to this piece.
    template <typename T>
    std::span<T> of(std::span<T> segment) const {
      return segment.subspan(static_cast<size_t>(at), static_cast<size_t>(count));
    }
  };
  using Pieces = std::vector<Piece>;
  // Temporary fp32 buffers, each of one full segment: the sum, another intermediate, and own values
  // widened to fp32.
  enum class Memory { kSum, kOther, kOwn };
  // Message sizes of a step in bytes.
  struct Lengths {
    size_t most = 0;
    size_t mean = 0;
  };

  // Computes the lengths of a step once and caches them.
  const Lengths& lengths(int step);
  // Returns the upper bound of the encoded size of all pieces.
  size_t most_bytes(const Pieces& pieces, EdgeKind edge_kind) const;
  // Returns the input or output. Values of a compressed op never lie in scratch.
  const Buffer& buffer(BufferId id) const;
  // Returns the pieces of the codec map that the segment covers, in order.
  Pieces pieces(int step, int64_t segment) const;
  // Returns the first `count` elements of a temporary buffer, which is allocated at its first use.
  std::span<float> memory(Memory which, int64_t count);
  // Returns the values of the range as fp32. They are converted into the buffer `into` only where
  // direct() returns nothing.
  std::span<const float> read(const Range& range, Memory into);
  // Converts the values to the op's dtype and stores them in the range.
  void write(const Range& range, std::span<const float> values);
  // Returns the elements in place if they are fp32, contiguous and aligned; else an empty span.
  std::span<float> direct(const Range& range) const;
  // Fills `silent_`. An allgather has no silent parts, and a part without a residual is never one.
  void find_silent_parts();
  // Adds this rank's own contribution to the sum, or assigns it if `first`. With `raw`, the exact
  // values are added; else the values go through the codec, as other ranks would see them.
  void add_own(const Piece& piece, bool first, bool raw, std::span<const float> own,
               std::span<float> sum);
  // Encodes a sum without residuals and returns at most `most` bytes.
  PooledBuffer encode_sum(const Pieces& pieces, EdgeKind edge_kind, std::span<const float> sum,
                          size_t most) const;
  // Decodes the payload of a receive step into the step's range.
  Error store(int step, int64_t segment, ConstBytes bytes);
  // Decodes one frame per piece from `bytes` into `out`, or adds them with `accumulate`. Returns
  // kProtocol if a frame is invalid or bytes remain.
  Error decode(const Pieces& pieces, EdgeKind edge_kind, ConstBytes bytes, bool accumulate,
               std::span<float> out);
  // Adds the encoding error of a sum to the residuals.
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
  // Encoded form of the own contribution in add_own().
  std::vector<std::byte> own_bytes_;
};

}  // namespace ringdist
