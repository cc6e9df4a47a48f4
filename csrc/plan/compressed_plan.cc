#include "plan/compressed_plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "base/hash.h"
#include "codec/frame.h"
#include "codec/none.h"

namespace ringdist {
namespace {

// Target for the encoded bytes of a segment, and limits for its elements. At the upper limit, the
// elements as fp32 are 512 KiB, which second-level caches hold.
constexpr double kSegmentBytes = 32 * 1024;
constexpr double kMostElements = 128 * 1024;
constexpr double kLeastElements = 32 * 1024;

// Return the typical bits of an element as contribution and as result together, and those of the
// whole map.
double bits_of(const CodecMapPart& part) {
  return part.codecs.contribution->bits() + part.codecs.result->bits();
}

double all_bits(const CodecMap& map) {
  double out = 0;
  for (const CodecMapPart& part : map.parts) out += bits_of(part) * static_cast<double>(part.count);
  return out;
}

// Returns the larger block of the two codecs. It is a multiple of the other, because blocks are
// powers of two.
int64_t block_of(const CodecMapPart& part) {
  return std::max(part.codecs.contribution->block(), part.codecs.result->block());
}

// Returns the maximum size of a message with elements [begin, end) of the map, in bytes. `uncoded`
// includes uncompressed messages.
size_t message_bytes(const CodecMap& map, int64_t begin, int64_t end, DType dtype, bool uncoded) {
  size_t contribution = 0;
  size_t result = 0;
  size_t as_it_is = 0;
  for (const CodecMapPart& part : map.parts) {
    const int64_t count = std::min(end, part.end()) - std::max(begin, part.offset);
    if (count <= 0) continue;
    contribution += max_frame_bytes(*part.codecs.contribution, count, dtype);
    result += max_frame_bytes(*part.codecs.result, count, dtype);
    if (uncoded) as_it_is += max_frame_bytes(no_codec(), count, dtype);
  }
  return std::max({contribution, result, as_it_is});
}

Error check_part(const CodecMapPart& part, size_t index, DType dtype) {
  const auto refuse = [&](const std::string& what) {
    return Error(ErrorKind::kInvalidArgument,
                 "codec of part " + std::to_string(index) + ": " + what);
  };
  for (const CodecPtr& codec : {part.codecs.contribution, part.codecs.result}) {
    const std::string name(codec->name());
    if (!codec->supports(dtype))
      return refuse("'" + name + "' does not encode " + std::string(dtype_name(dtype)));
    if (part.residual != nullptr && !codec->contraction())
      return refuse("'" + name + "' may lose more than it was given, so error feedback would " +
                    "diverge; give no residual, or another codec");
  }
  return {};
}

Error check_kind(const OpSpec& request) {
  const bool gathers = request.kind == Collective::kAllgather;
  const bool reduces =
      request.kind == Collective::kAllreduce || request.kind == Collective::kReduceScatter;
  if (!gathers && !reduces)
    return Error(ErrorKind::kNotSupported,
                 "codec: " + std::string(collective_name(request.kind)) +
                     " is not compressed; all_reduce, reduce_scatter and all_gather are");
  const ReduceOp op = request.reduce_op;
  if (reduces && op != ReduceOp::kSum && op != ReduceOp::kAvg)
    return Error(ErrorKind::kInvalidArgument,
                 "op: a codec needs SUM or AVG, got " + std::string(reduce_op_name(op)));
  if (request.dtype != DType::kFloat32 && !is_half(request.dtype))
    return Error(ErrorKind::kInvalidArgument,
                 "dtype: a codec needs float32, bfloat16 or float16, got " +
                     std::string(dtype_name(request.dtype)));
  return {};
}

}  // namespace

Error check_codec_map(const OpSpec& request, int size) {
  if (Error error = check_kind(request)) return error;
  const CodecMap& map = *request.codec_map;
  const int64_t parts = request.kind == Collective::kReduceScatter ? size : 1;
  int64_t at = 0;
  for (size_t i = 0; i < map.parts.size(); ++i) {
    const CodecMapPart& part = map.parts[i];
    check(part.offset == at && part.count >= 0, "a block map with gaps");
    at = part.end();
    if (Error error = check_part(part, i, request.dtype)) return error;
  }
  check(at == parts * request.count, "a block map that does not cover its buffer");
  return {};
}

CompressionLoss loss_of(const CodecMap& map) {
  CompressionLoss out = CompressionLoss::kNothing;
  for (const CodecMapPart& part : map.parts) {
    if (block_of(part) > 1) return CompressionLoss::kBlocks;
    if (!part.codecs.contribution->exact() || !part.codecs.result->exact())
      out = CompressionLoss::kElements;
  }
  return out;
}

std::vector<int64_t> compressed_shards(const CodecMap& map, int shards) {
  if (loss_of(map) == CompressionLoss::kNothing) return even_shards(map.count(), shards);
  std::vector<int64_t> out{0};
  const double total = all_bits(map);
  double before = 0;  // bits of the parts before `part`
  auto part = map.parts.begin();
  for (int shard = 1; shard < shards; ++shard) {
    const double target = total * shard / shards;
    while (part != map.parts.end() &&
           before + bits_of(*part) * static_cast<double>(part->count) < target)
      before += bits_of(*part) * static_cast<double>((part++)->count);
    int64_t cut = map.count();
    if (part != map.parts.end()) {
      const auto block = static_cast<double>(block_of(*part));
      const double blocks = std::round((target - before) / bits_of(*part) / block);
      cut = std::min(part->end(), part->offset + static_cast<int64_t>(blocks * block));
    }
    out.push_back(std::max(out.back(), cut));
  }
  out.push_back(map.count());
  return out;
}

uint64_t compression_hash(const OpSpec& request, int shards) {
  Hash out;
  out.add(request.codec_map->hash());
  if (request.kind == Collective::kAllreduce)
    for (const int64_t bound : compressed_shards(*request.codec_map, shards)) out.add(bound);
  return out.value();
}

Result<int64_t> compressed_segment_count(const OpSpec& request, const CompressedRanges& ranges,
                                         int64_t segment_bytes) {
  const CodecMap& map = *request.codec_map;
  if (map.count() == 0) return int64_t{1};
  std::vector<int64_t> bounds{0, map.count()};
  if (request.kind == Collective::kAllreduce) bounds = compressed_shards(map, ranges.shards);
  if (request.kind == Collective::kReduceScatter) {
    bounds.clear();
    for (int rank = 0; rank <= ranges.size; ++rank) bounds.push_back(rank * request.count);
  }
  const double bits = all_bits(map) / 2 / static_cast<double>(map.count());
  auto count = static_cast<int64_t>(
      std::clamp(kSegmentBytes * 8 / std::max(bits, 0.01), kLeastElements, kMostElements));
  // Blocks restart at each segment, so whole blocks avoid tails in the middle of a part.
  count = count / Codec::kMaxBlock * Codec::kMaxBlock;
  const auto fits = [&] {
    for (size_t shard = 0; shard + 1 < bounds.size(); ++shard)
      for (int64_t at = bounds[shard]; at < bounds[shard + 1]; at += count)
        if (message_bytes(map, at, std::min(bounds[shard + 1], at + count), request.dtype,
                          ranges.uncompressed_intra_host) > static_cast<size_t>(segment_bytes))
          return false;
    return true;
  };
  // Typical sizes can be exceeded, so every message is checked with its maximum size.
  for (; count >= 1; count /= 2)
    if (fits()) return count;
  return Error(ErrorKind::kInvalidArgument,
               "segment_bytes: " + std::to_string(segment_bytes) +
                   " holds no compressed element; at least 4096 are recommended");
}

}  // namespace ringdist
