#include "plan/codec_map_pieces.h"

#include <algorithm>

#include "codec/none.h"
#include "kernel/counter_rng.h"

namespace ringdist {

// Two steps: the op and the position give the shared half, and the rank then gives the own half. So
// pieces of one op, and equal positions of two ops, have different seeds.
CodecSeed CodecMapPiece::seed(uint64_t op_number, int rank) const {
  const uint64_t shared = random_at(op_number, static_cast<uint64_t>(index));
  return {shared, random_at(shared, static_cast<uint64_t>(rank))};
}

std::vector<CodecMapPiece> pieces_of(const CodecMap& map, int64_t begin, int64_t count) {
  const int64_t end = begin + count;
  std::vector<CodecMapPiece> out;
  auto it = std::upper_bound(map.parts.begin(), map.parts.end(), begin,
                             [](int64_t at, const CodecMapPart& part) { return at < part.end(); });
  for (; it != map.parts.end() && it->offset < end; ++it) {
    const int64_t from = std::max(begin, it->offset);
    const int64_t to = std::min(end, it->end());
    if (from != to) out.push_back({&*it, from, from - begin, to - from});
  }
  return out;
}

// A send has the index of the step that encodes its values. A partial sum in scratch has the index
// of the own values that were added to it. In an allgather's output all parts have the same
// indices, because the map covers one part.
int64_t index_in_map(const CompiledSchedule& schedule, const OpSpec& request, int step) {
  const CompiledStep& compiled = schedule.steps[static_cast<size_t>(step)];
  if (compiled.step.kind == StepKind::kSend && compiled.producer >= 0)
    return index_in_map(schedule, request, compiled.producer);
  Range range = compiled.step.range;
  for (const Source& source : compiled.step.sources)
    if (source.peer < 0) range = source.range;
  if (request.kind != Collective::kAllgather) return range.offset;
  return range.buffer == BufferId::kOutput && request.count > 0 ? range.offset % request.count
                                                                : range.offset;
}

const Codec& codec_of(EdgeKind edge_kind, const CodecPair& codecs) {
  if (edge_kind == EdgeKind::kIntraHost) return no_codec();
  return edge_kind == EdgeKind::kContribution ? *codecs.contribution : *codecs.result;
}

bool adds_own_raw(const Step& step, const CodecMapPart& part, int size) {
  // The partial sum of a ring is encoded together with our values, and a sum inside a host has no
  // encoded contributions. If results are encoded more finely than contributions, encoding our
  // values first would only add noise.
  const auto inside = [](const Source& source) { return source.edge_kind == EdgeKind::kIntraHost; };
  return step.sources.size() < static_cast<size_t>(size) ||
         std::ranges::any_of(step.sources, inside) ||
         part.codecs.result->bits() > part.codecs.contribution->bits() ||
         part.codecs.contribution->exact();
}

}  // namespace ringdist
