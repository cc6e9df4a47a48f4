#include "engine/op/compressed_arithmetic.h"

#include <algorithm>

#include "base/check.h"
#include "codec/frame.h"
#include "kernel/cast.h"
#include "kernel/feedback.h"

namespace ringdist {

ResidualSpan CompressedArithmetic::Piece::residual() const {
  if (part->residual == nullptr) return {};
  return {residual_values(), next_residual(), static_cast<size_t>(count)};
}

// A silent part contributes zeros without its residual, which is carried over for the next op.
ResidualSpan CompressedArithmetic::Piece::take_residual() const {
  if (!silent) return residual();
  residual().keep();
  return {};
}

CompressedArithmetic::CompressedArithmetic(const Op& op, int rank, int size,
                                           std::shared_ptr<ScratchPool> pool)
    : op_(op), map_(*op.request.codec_map), rank_(rank), size_(size), pool_(std::move(pool)) {
  memory_bytes_ = static_cast<size_t>(op.schedule->segment_count) * sizeof(float);
  find_silent_parts();
  if (size_ > 1) return;
  for (const CodecMapPart& part : map_.parts)  // no other ranks: nothing is encoded
    Piece{{&part, part.offset, 0, part.count}, true}.residual().keep();
}

void CompressedArithmetic::find_silent_parts() {
  silent_.resize(map_.parts.size());
  const bool gathers = op_.request.kind == Collective::kAllgather;
  if (gathers) return;
  const BufferId own =
      op_.request.kind == Collective::kAllreduce ? BufferId::kOutput : BufferId::kInput;
  const int64_t chunk = op_.schedule->segment_count;
  for (size_t p = 0; p < map_.parts.size(); ++p) {
    const CodecMapPart& part = map_.parts[p];
    if (part.residual == nullptr) continue;
    bool silent = true;
    for (int64_t at = part.offset; silent && at < part.end(); at += chunk)
      silent = all_zero(read({own, at, std::min(chunk, part.end() - at)}, Memory::kOwn));
    silent_[p] = silent;
  }
}

const Buffer& CompressedArithmetic::buffer(BufferId id) const {
  check(id != BufferId::kScratch, "values of a compressed op in scratch");
  return id == BufferId::kInput ? op_.request.input : op_.request.output;
}

CompressedArithmetic::Pieces CompressedArithmetic::pieces(int step, int64_t segment) const {
  const Range range = op_.schedule->slice(step, op_.schedule->steps[step].step.range, segment);
  const int64_t begin =
      index_in_map(*op_.schedule, op_.request, step) + op_.schedule->segment_begin(segment);
  Pieces out;
  for (const CodecMapPiece& piece : pieces_of(map_, begin, range.count))
    out.push_back({piece, silent_[static_cast<size_t>(piece.part - map_.parts.data())]});
  return out;
}

std::span<float> CompressedArithmetic::memory(Memory which, int64_t count) {
  auto& block = memory_[static_cast<size_t>(which)];
  if (!block) block = PooledBuffer(pool_, memory_bytes_);
  return {reinterpret_cast<float*>(block.bytes().data()), static_cast<size_t>(count)};
}

std::span<float> CompressedArithmetic::direct(const Range& range) const {
  if (op_.request.dtype != DType::kFloat32) return {};
  const Bytes bytes = buffer(range.buffer).contiguous(range.offset, range.count);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) != 0) return {};
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<const float> CompressedArithmetic::read(const Range& range, Memory into) {
  if (const auto values = direct(range); values.data() != nullptr) return values;
  const std::span<float> out = memory(into, range.count);
  const size_t element = dtype_size(op_.request.dtype);
  size_t at = 0;
  buffer(range.buffer).for_each(range.offset, range.count, [&](Bytes piece) {
    const size_t count = piece.size() / element;
    widen(op_.request.dtype, piece, out.subspan(at, count));
    at += count;
  });
  return out;
}

void CompressedArithmetic::write(const Range& range, std::span<const float> values) {
  const size_t element = dtype_size(op_.request.dtype);
  size_t at = 0;
  buffer(range.buffer).for_each(range.offset, range.count, [&](Bytes piece) {
    const size_t count = piece.size() / element;
    narrow(op_.request.dtype, values.subspan(at, count), piece);
    at += count;
  });
}

size_t CompressedArithmetic::message_bytes(int step, int64_t segment) const {
  const Step& description = op_.schedule->steps[step].step;
  const Pieces parts = pieces(step, segment);
  if (description.kind != StepKind::kReduce) return most_bytes(parts, description.edge_kind);
  size_t out = 0;  // bound over all kinds of edges that arrive
  for (const EdgeKind edge_kind : {EdgeKind::kContribution, EdgeKind::kIntraHost})
    if (std::ranges::any_of(description.sources, [edge_kind](const Source& source) {
          return source.peer >= 0 && source.edge_kind == edge_kind;
        }))
      out = std::max(out, most_bytes(parts, edge_kind));
  return out;
}

size_t CompressedArithmetic::most_bytes(const Pieces& pieces, EdgeKind edge_kind) const {
  size_t out = 0;
  for (const Piece& piece : pieces)
    out += max_frame_bytes(codec_of(edge_kind, piece.part->codecs), piece.count, op_.request.dtype);
  return out;
}

const CompressedArithmetic::Lengths& CompressedArithmetic::lengths(int step) {
  const auto [it, fresh] = lengths_.try_emplace(step);
  if (!fresh) return it->second;
  const int64_t segments = op_.schedule->steps[step].segments;
  size_t sum = 0;
  for (int64_t segment = 0; segment < segments; ++segment) {
    const size_t bytes = message_bytes(step, segment);
    it->second.most = std::max(it->second.most, bytes);
    sum += bytes;
  }
  it->second.mean = sum / static_cast<size_t>(std::max<int64_t>(1, segments));
  return it->second;
}

ConstBytes CompressedArithmetic::view(int, int64_t, PooledBuffer&) {
  check_failed("values of a compressed op sent as they are", std::source_location::current());
}

size_t CompressedArithmetic::encode(int step, int64_t segment, Bytes out) {
  const Step& description = op_.schedule->steps[step].step;
  const Range slice = op_.schedule->slice(step, description.range, segment);
  if (slice.count == 0) return 0;
  const std::span<const float> own = read(slice, Memory::kOwn);
  size_t used = 0;
  for (const Piece& piece : pieces(step, segment))
    used += encode_frame(codec_of(description.edge_kind, piece.part->codecs), piece.of(own),
                         op_.request.dtype, piece.take_residual(), piece.seed(op_.number, rank_),
                         out.subspan(used));
  return used;
}

void CompressedArithmetic::add_own(const Piece& piece, bool first, bool raw,
                                   std::span<const float> own, std::span<float> sum) {
  const std::span<float> to = piece.of(sum);
  const ResidualSpan residual = piece.take_residual();
  const Codec& codec = *piece.part->codecs.contribution;
  if (raw) return add_contribution(to, first, piece.of(own), {residual.from, residual.count});
  own_bytes_.resize(codec.max_bytes(piece.count, op_.request.dtype));
  const size_t used = codec.encode(piece.of(own), op_.request.dtype, residual,
                                   piece.seed(op_.number, rank_), own_bytes_);
  const Result<size_t> read = codec.decode(ConstBytes(own_bytes_).first(used), op_.request.dtype,
                                           piece.seed(op_.number, rank_), !first, to);
  check(read.ok(), "a codec cannot decode what it encoded");
}

Error CompressedArithmetic::decode(const Pieces& pieces, EdgeKind edge_kind, ConstBytes bytes,
                                   bool accumulate, std::span<float> out) {
  for (const Piece& piece : pieces) {
    const Result<size_t> used =
        decode_frame(codec_of(edge_kind, piece.part->codecs), bytes, op_.request.dtype,
                     piece.seed(op_.number, rank_), accumulate, piece.of(out));
    if (!used.ok()) return used.error();
    bytes = bytes.subspan(used.value());
  }
  if (!bytes.empty())
    return Error(ErrorKind::kProtocol, "codec: " + std::to_string(bytes.size()) +
                                           " bytes more than the segment's frames have");
  return {};
}

PooledBuffer CompressedArithmetic::encode_sum(const Pieces& pieces, EdgeKind edge_kind,
                                              std::span<const float> sum, size_t most) const {
  PooledBuffer out(pool_, most);
  size_t used = 0;
  for (const Piece& piece : pieces)
    used += encode_frame(codec_of(edge_kind, piece.part->codecs), piece.of(sum), op_.request.dtype,
                         {}, piece.seed(op_.number, rank_), out.bytes().subspan(used));
  out.truncate(used);
  return out;
}

// Adds the encoding error of the sum to the residuals, in units of a contribution. An average
// divides the sum by the number of ranks, so the error is multiplied by that number. If the own
// contribution was added raw, with its residual, then the old residual has been applied and is
// dropped. Otherwise encode() has already written the remaining residual, and the error is added to
// that.
void CompressedArithmetic::keep_losses(const Step& step, const Pieces& pieces,
                                       std::span<const float> sum, std::span<const float> stored) {
  const bool averaged = step.finish && op_.request.reduce_op == ReduceOp::kAvg;
  for (const Piece& piece : pieces) {
    const ResidualSpan residual = piece.residual();
    if (residual.empty()) continue;
    const bool applied = !piece.silent && adds_own_raw(step, *piece.part, size_);
    const float* const old_residual = applied ? residual.from : residual.to;
    add_loss({old_residual, residual.to, residual.count}, /*keep=*/!applied,
             averaged ? static_cast<float>(size_) : 1.0f, piece.of(sum), piece.of(stored));
  }
}

// Decodes and adds the sources in their fixed order, which determines the bits of the sum. If the
// sum is sent on, this rank stores the decoded value, as the receivers do.
Error CompressedArithmetic::reduce(int step, int64_t segment, std::span<const ConstBytes> arrived,
                                   PooledBuffer& held) {
  const CompiledStep& compiled = op_.schedule->steps[step];
  const Step& description = compiled.step;
  const Range range = op_.schedule->slice(step, description.range, segment);
  const Pieces parts = pieces(step, segment);
  const std::span<float> sum = memory(Memory::kSum, range.count);
  size_t slot = 0;
  for (size_t s = 0; s < description.sources.size(); ++s) {
    const Source& source = description.sources[s];
    if (source.peer >= 0) {
      if (Error error = decode(parts, source.edge_kind, arrived[slot++], s > 0, sum)) return error;
      continue;
    }
    const auto own = read(op_.schedule->slice(step, source.range, segment), Memory::kOwn);
    for (const Piece& piece : parts)
      add_own(piece, s == 0, adds_own_raw(description, *piece.part, size_), own, sum);
  }
  if (description.finish && op_.request.reduce_op == ReduceOp::kAvg)
    // The same division as in reduce(), so that exact codecs alter no bit.
    divide(sum, static_cast<float>(size_));

  const std::span<float> place = description.finish ? direct(range) : std::span<float>();
  const bool in_place = place.data() != nullptr;
  const std::span<float> values = in_place ? place : memory(Memory::kOther, range.count);
  if (compiled.consumer >= 0) {
    const EdgeKind edge_kind = op_.schedule->steps[compiled.consumer].step.edge_kind;
    held = encode_sum(parts, edge_kind, sum, message_bytes(compiled.consumer, segment));
    const Error error = decode(parts, edge_kind, held.bytes(), false, values);
    check(!error, "a codec cannot decode what it encoded");
  } else {
    std::copy(sum.begin(), sum.end(), values.begin());
  }
  if (description.finish && !in_place) {
    write(range, values);
    // The error is measured against the stored value, because a 16-bit type rounds once more.
    (void)read(range, Memory::kOther);
  }
  keep_losses(description, parts, sum, values);
  return {};
}

Error CompressedArithmetic::copy(int step, int64_t segment, PooledBuffer& held) {
  const CompiledStep& compiled = op_.schedule->steps[step];
  const auto own =
      read(op_.schedule->slice(step, compiled.step.sources[0].range, segment), Memory::kOwn);
  held = encode_sum(pieces(step, segment), EdgeKind::kResult, own,
                    message_bytes(compiled.consumer, segment));
  return store(step, segment, held.bytes());
}

Error CompressedArithmetic::place(int step, int64_t segment, ConstBytes arrived,
                                  PooledBuffer& held) {
  if (Error error = store(step, segment, arrived)) return error;
  if (op_.schedule->steps[step].step.kind != StepKind::kRelay) return {};
  // Allocated even if empty, because hand_on() sends only held buffers.
  held = PooledBuffer(pool_, arrived.size());
  std::ranges::copy(arrived, held.bytes().begin());
  return {};
}

Error CompressedArithmetic::store(int step, int64_t segment, ConstBytes bytes) {
  const Range range = op_.schedule->slice(step, op_.schedule->steps[step].step.range, segment);
  const Pieces parts = pieces(step, segment);
  if (const auto to = direct(range); to.data() != nullptr)
    return decode(parts, EdgeKind::kResult, bytes, false, to);
  const std::span<float> values = memory(Memory::kOther, range.count);
  if (Error error = decode(parts, EdgeKind::kResult, bytes, false, values)) return error;
  write(range, values);
  return {};
}

Pooled<Arithmetic> compressed_arithmetic(const Op& op, int rank, int size,
                                         const ArithmeticMemory& memory) {
  return make_pooled<CompressedArithmetic>(memory.objects, op, rank, size, memory.scratch);
}

}  // namespace ringdist
