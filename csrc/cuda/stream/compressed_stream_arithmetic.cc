// Arithmetic of a compressed op on a stream. Contributions are encoded with their residuals, and
// sums are decoded and added in the order of their sources. A result is encoded once for all
// receivers. Losses go into the residuals.
//
// The results are bit-identical to those of engine/op/compressed_arithmetic.h. A message has the
// bytes of its pieces, in the formats of codec/*.spec.md. Each piece begins at a multiple of
// kAlign.
#include <map>
#include <vector>

#include "base/check.h"
#include "codec/codec_map.h"
#include "cuda/stream/kernel_codec_of.h"
#include "cuda/stream/stream_arithmetic.h"
#include "plan/codec_map_pieces.h"

namespace ringdist::gpu {
namespace {

constexpr size_t kAlign = 16;

class CompressedStreamArith final : public StreamArithmetic {
 public:
  CompressedStreamArith(StreamOp& op, int* malformed)
      : op_(op),
        map_(*op.op.request.codec_map),
        dtype_(op.op.request.dtype),
        malformed_(malformed) {}

  Error begin() override;
  DeviceBytes incoming(int step, int slot) const override;
  std::byte* landing(int) const override { return nullptr; }
  Result<DeviceBytes> run(int step, std::span<const DeviceBytes> arrived) override;

 private:
  using Pieces = std::vector<CodecMapPiece>;

  size_t part_of(const CodecMapPiece& piece) const {
    return static_cast<size_t>(piece.part - map_.parts.data());
  }
  // Returns the step's range by parts of the codec map. Positions `at` count from its begin.
  Pieces pieces(int step) const {
    return pieces_of(map_, index_in_map(op_.schedule, op_.op.request, step),
                     op_.step(step).step.range.count);
  }
  // Returns the room for an encoded piece in a message.
  size_t bytes_of(const CodecMapPiece& piece, EdgeKind edge_kind) const {
    const size_t bytes = codec_of(edge_kind, piece.part->codecs).max_bytes(piece.count, dtype_);
    return (bytes + kAlign - 1) / kAlign * kAlign;
  }
  // Returns the layout of a message with these pieces; `data` stays null.
  DeviceBytes message_of(const Pieces& pieces, EdgeKind edge_kind) const;
  Seed seed(const CodecMapPiece& piece) const {
    const CodecSeed of_op = piece.seed(op_.op.number, op_.rank);
    return {of_op.shared, of_op.own};
  }
  // Returns the residual of a piece, with the flag that decides on the device if it applies.
  ResidualPointers residual_of(const CodecMapPiece& piece) const {
    if (piece.part->residual == nullptr) return {};
    return {piece.residual_values(), piece.next_residual(),
            awake_.empty() ? nullptr : awake_[part_of(piece)]};
  }

  // Returns the elements if they are fp32 and contiguous, otherwise null.
  float* direct(const Range& range) const {
    return dtype_ == DType::kFloat32 ? reinterpret_cast<float*>(op_.whole(range)) : nullptr;
  }
  // Returns uninitialized memory in the op's scratch.
  Result<float*> floats(int64_t count);
  // Returns the range as fp32: its own memory if direct() has it, otherwise a converted copy.
  Result<const float*> read(const Range& range);
  // Calls body(values, at, count) for each contiguous span of the range. `at` counts elements from
  // the range's begin.
  template <typename Body>
  void for_each(const Range& range, const Body& body) const;
  Error read_into(const Range& range, float* out);
  Error write(const Range& range, const float* values);

  void encode(const CodecMapPiece& piece, EdgeKind edge_kind, const float* in,
              ResidualPointers residual, std::byte* out, LaunchBatch& to) const;
  void decode(const CodecMapPiece& piece, EdgeKind edge_kind, const std::byte* in, bool accumulate,
              float* out, LaunchBatch& to) const;
  Error enqueue(const LaunchBatch& calls) { return calls.enqueue(op_.cuda, op_.stream); }
  Error decode(const Pieces& pieces, EdgeKind edge_kind, const std::byte* in, bool accumulate,
               float* out);
  enum class Feedback : bool { kNone, kApplied };
  // Returns a new message in scratch. kApplied adds residuals before, and stores what is lost.
  Result<DeviceBytes> encode(const Pieces& pieces, EdgeKind edge_kind, const float* in,
                             Feedback feedback);

  Result<DeviceBytes> send(int step);
  Error store(int step, const std::byte* bytes);
  Error copy(int step);
  Error reduce(int step, std::span<const DeviceBytes> arrived);
  Error add_up(int step, std::span<const DeviceBytes> arrived, float* sum);
  Error add_own(const Pieces& pieces, const Step& what, bool first, const float* own, float* sum);
  // Turns a sum into the values that all ranks will have, and encodes it for the sends that follow.
  Error round_sum(int step, const float* sum, float* values);
  Error keep_losses(int step, const float* sum, const float* stored);

  StreamOp& op_;
  const CodecMap& map_;
  const DType dtype_;
  int* const malformed_;
  // by part, for parts with a residual: nonzero if any value is nonzero
  std::vector<const uint32_t*> awake_;
  std::map<int, DeviceBytes> encoded_;  // by the step that sends it
};

// A part with only zeros of its own sends zeros and keeps its residual. Kernels find out which
// parts.
Error CompressedStreamArith::begin() {
  const Collective kind = op_.op.request.kind;
  if (kind == Collective::kAllgather) return {};
  const BufferId own = kind == Collective::kAllreduce ? BufferId::kOutput : BufferId::kInput;
  const size_t bytes = map_.parts.size() * sizeof(uint32_t);
  const auto flags = op_.scratch.take(bytes);
  if (!flags.ok()) return flags.error();
  if (Error error = op_.cuda.clear(flags.value(), bytes, op_.stream)) return error;
  auto* const found = reinterpret_cast<uint32_t*>(flags.value());
  awake_.resize(map_.parts.size());
  LaunchBatch calls;
  for (size_t p = 0; p < map_.parts.size(); ++p) {
    const CodecMapPart& part = map_.parts[p];
    if (part.residual == nullptr || part.count == 0) continue;
    awake_[p] = found + p;
    for_each({own, part.offset, part.count}, [&](std::byte* values, int64_t, int64_t count) {
      calls.run(FindValues{dtype_, values, found + p, count});
    });
  }
  return enqueue(calls);
}

DeviceBytes CompressedStreamArith::message_of(const Pieces& pieces, EdgeKind edge_kind) const {
  DeviceBytes out;
  for (const CodecMapPiece& piece : pieces) {
    const size_t room = bytes_of(piece, edge_kind);
    const auto coding = kernel_codec_of(codec_of(edge_kind, piece.part->codecs), dtype_);
    if (coding && coding->code == Code::kLossless) out.varying.push_back({out.size, room});
    out.size += room;
  }
  return out;
}

DeviceBytes CompressedStreamArith::incoming(int step, int slot) const {
  const CompiledStep& compiled = op_.step(step);
  if (compiled.step.kind != StepKind::kReduce)
    return message_of(pieces(step), compiled.step.edge_kind);
  const int source = compiled.source_of_in[static_cast<size_t>(slot)];
  return message_of(pieces(step), compiled.step.sources[static_cast<size_t>(source)].edge_kind);
}

Result<DeviceBytes> CompressedStreamArith::run(int step, std::span<const DeviceBytes> arrived) {
  Error error;
  switch (op_.step(step).step.kind) {
    case StepKind::kSend:
      return send(step);
    case StepKind::kRecv:
    case StepKind::kRelay:
      error = store(step, arrived[0].data);
      break;
    case StepKind::kCopy:
      error = copy(step);
      break;
    case StepKind::kReduce:
      error = reduce(step, arrived);
      break;
  }
  if (error) return error;
  return arrived.empty() ? DeviceBytes{} : arrived[0];
}

Result<float*> CompressedStreamArith::floats(int64_t count) {
  const auto memory = op_.scratch.take(static_cast<size_t>(count) * sizeof(float));
  if (!memory.ok()) return memory.error();
  return reinterpret_cast<float*>(memory.value());
}

Result<const float*> CompressedStreamArith::read(const Range& range) {
  if (const float* const there = direct(range)) return there;
  const auto out = floats(range.count);
  if (!out.ok()) return out.error();
  if (Error error = read_into(range, out.value())) return error;
  return static_cast<const float*>(out.value());
}

template <typename Body>
void CompressedStreamArith::for_each(const Range& range, const Body& body) const {
  int64_t at = 0;
  op_.buffer(range.buffer).for_each(range.offset, range.count, [&](Bytes piece) {
    const auto count = static_cast<int64_t>(piece.size() / dtype_size(dtype_));
    body(piece.data(), at, count);
    at += count;
  });
}

Error CompressedStreamArith::read_into(const Range& range, float* out) {
  LaunchBatch calls;
  for_each(range, [&](const std::byte* stored, int64_t at, int64_t count) {
    calls.run(Read{dtype_, stored, false, out + at, count});
  });
  return enqueue(calls);
}

Error CompressedStreamArith::write(const Range& range, const float* values) {
  LaunchBatch calls;
  for_each(range, [&](std::byte* stored, int64_t at, int64_t count) {
    calls.run(Write{dtype_, values + at, {}, stored, count});
  });
  return enqueue(calls);
}

void CompressedStreamArith::encode(const CodecMapPiece& piece, EdgeKind edge_kind, const float* in,
                                   ResidualPointers residual, std::byte* out,
                                   LaunchBatch& to) const {
  const auto coding = kernel_codec_of(codec_of(edge_kind, piece.part->codecs), dtype_);
  if (coding)
    to.encode(*coding, {in, residual, piece.count, seed(piece), reinterpret_cast<uint8_t*>(out)});
  else
    to.run(Write{dtype_, in, residual, out, piece.count});
}

void CompressedStreamArith::decode(const CodecMapPiece& piece, EdgeKind edge_kind,
                                   const std::byte* in, bool accumulate, float* out,
                                   LaunchBatch& to) const {
  const auto coding = kernel_codec_of(codec_of(edge_kind, piece.part->codecs), dtype_);
  if (coding)
    to.decode(*coding, {reinterpret_cast<const uint8_t*>(in), seed(piece), accumulate, out,
                        piece.count, malformed_});
  else
    to.run(Read{dtype_, in, accumulate, out, piece.count});
}

Error CompressedStreamArith::decode(const Pieces& pieces, EdgeKind edge_kind, const std::byte* in,
                                    bool accumulate, float* out) {
  LaunchBatch calls;
  for (const CodecMapPiece& piece : pieces) {
    decode(piece, edge_kind, in, accumulate, out + piece.at, calls);
    in += bytes_of(piece, edge_kind);
  }
  return enqueue(calls);
}

Result<DeviceBytes> CompressedStreamArith::encode(const Pieces& pieces, EdgeKind edge_kind,
                                                  const float* in, Feedback feedback) {
  DeviceBytes message = message_of(pieces, edge_kind);
  const auto out = op_.scratch.take(message.size);
  if (!out.ok()) return out.error();
  LaunchBatch calls;
  std::byte* to = message.data = out.value();
  for (const CodecMapPiece& piece : pieces) {
    const ResidualPointers residual =
        feedback == Feedback::kApplied ? residual_of(piece) : ResidualPointers{};
    encode(piece, edge_kind, in + piece.at, residual, to, calls);
    to += bytes_of(piece, edge_kind);
  }
  if (Error error = enqueue(calls)) return error;
  return message;
}

Result<DeviceBytes> CompressedStreamArith::send(int step) {
  if (const auto it = encoded_.find(step); it != encoded_.end()) return it->second;
  const Step& what = op_.step(step).step;
  const auto own = read(what.range);
  if (!own.ok()) return own.error();
  return encode(pieces(step), what.edge_kind, own.value(), Feedback::kApplied);
}

Error CompressedStreamArith::store(int step, const std::byte* bytes) {
  const Range& range = op_.step(step).step.range;
  const Pieces parts = pieces(step);
  if (float* const there = direct(range))
    return decode(parts, EdgeKind::kResult, bytes, false, there);
  const auto values = floats(range.count);
  if (!values.ok()) return values.error();
  if (Error error = decode(parts, EdgeKind::kResult, bytes, false, values.value())) return error;
  return write(range, values.value());
}

// In an allgather the own part is replaced by its decoded values, so that all ranks have the same.
Error CompressedStreamArith::copy(int step) {
  const CompiledStep& compiled = op_.step(step);
  const auto own = read(compiled.step.sources[0].range);
  if (!own.ok()) return own.error();
  const auto bytes = encode(pieces(step), EdgeKind::kResult, own.value(), Feedback::kNone);
  if (!bytes.ok()) return bytes.error();
  if (compiled.consumer >= 0) encoded_[compiled.consumer] = bytes.value();
  return store(step, bytes.value().data);
}

// Contributions that are added in encoded form are encoded and decoded here, too, so that they have
// the same loss as those of other ranks.
Error CompressedStreamArith::add_own(const Pieces& pieces, const Step& what, bool first,
                                     const float* own, float* sum) {
  constexpr EdgeKind kMark = EdgeKind::kContribution;
  const auto is_raw = [&](const CodecMapPiece& piece) {
    return adds_own_raw(what, *piece.part, op_.size);
  };
  size_t bytes = 0;
  for (const CodecMapPiece& piece : pieces) bytes += is_raw(piece) ? 0 : bytes_of(piece, kMark);
  const auto memory = op_.scratch.take(bytes);
  if (!memory.ok()) return memory.error();
  std::byte* coded = memory.value();
  // Calls in one batch have no order. Decodes therefore are in a batch behind that of the encodes.
  LaunchBatch encodes, sums;
  for (const CodecMapPiece& piece : pieces) {
    const float* const in = own + piece.at;
    float* const out = sum + piece.at;
    if (is_raw(piece)) {
      sums.run(Contribute{in, residual_of(piece), first, out, piece.count});
      continue;
    }
    encode(piece, kMark, in, residual_of(piece), coded, encodes);
    decode(piece, kMark, coded, !first, out, sums);
    coded += bytes_of(piece, kMark);
  }
  const Error error = enqueue(encodes);
  return error ? error : enqueue(sums);
}

Error CompressedStreamArith::add_up(int step, std::span<const DeviceBytes> arrived, float* sum) {
  const Step& what = op_.step(step).step;
  const Pieces parts = pieces(step);
  size_t slot = 0;
  for (size_t s = 0; s < what.sources.size(); ++s) {
    const Source& source = what.sources[s];
    if (source.peer >= 0) {
      if (Error error = decode(parts, source.edge_kind, arrived[slot++].data, s > 0, sum))
        return error;
      continue;
    }
    const auto own = read(source.range);
    if (!own.ok()) return own.error();
    if (Error error = add_own(parts, what, s == 0, own.value(), sum)) return error;
  }
  if (!what.finish || op_.op.request.reduce_op != ReduceOp::kAvg) return {};
  LaunchBatch dividing;
  dividing.run(Divide{sum, static_cast<float>(op_.size), what.range.count});
  return enqueue(dividing);
}

Error CompressedStreamArith::round_sum(int step, const float* sum, float* values) {
  const CompiledStep& compiled = op_.step(step);
  if (compiled.consumer < 0)
    return op_.cuda.copy(
        values, sum, static_cast<size_t>(compiled.step.range.count) * sizeof(float), op_.stream);
  const EdgeKind edge_kind = op_.step(compiled.consumer).step.edge_kind;
  const Pieces parts = pieces(step);
  const auto bytes = encode(parts, edge_kind, sum, Feedback::kNone);
  if (!bytes.ok()) return bytes.error();
  encoded_[compiled.consumer] = bytes.value();
  return decode(parts, edge_kind, bytes.value().data, false, values);
}

Error CompressedStreamArith::reduce(int step, std::span<const DeviceBytes> arrived) {
  const Step& what = op_.step(step).step;
  const auto sum = floats(what.range.count);
  if (!sum.ok()) return sum.error();
  if (Error error = add_up(step, arrived, sum.value())) return error;
  float* const there = what.finish ? direct(what.range) : nullptr;
  const auto values = there != nullptr ? Result<float*>(there) : floats(what.range.count);
  if (!values.ok()) return values.error();
  if (Error error = round_sum(step, sum.value(), values.value())) return error;
  if (what.finish && there == nullptr) {
    if (Error error = write(what.range, values.value())) return error;
    // A half dtype rounds once more when it is stored, so losses are relative to the stored value.
    if (Error error = read_into(what.range, values.value())) return error;
  }
  return keep_losses(step, sum.value(), values.value());
}

// Residuals are in units of a contribution. An average divides the sum, so its loss is multiplied
// by the number of ranks.
Error CompressedStreamArith::keep_losses(int step, const float* sum, const float* stored) {
  const Step& what = op_.step(step).step;
  const bool averaged = what.finish && op_.op.request.reduce_op == ReduceOp::kAvg;
  LaunchBatch calls;
  for (const CodecMapPiece& piece : pieces(step)) {
    const ResidualPointers residual = residual_of(piece);
    if (residual.empty()) continue;
    calls.run(WriteResidual{residual, adds_own_raw(what, *piece.part, op_.size),
                            averaged ? static_cast<float>(op_.size) : 1.0f, sum + piece.at,
                            stored + piece.at, piece.count});
  }
  return enqueue(calls);
}

}  // namespace

std::unique_ptr<StreamArithmetic> compressed_stream_arithmetic(StreamOp& op, int* malformed) {
  return std::make_unique<CompressedStreamArith>(op, malformed);
}

}  // namespace ringdist::gpu
