#include "cuda/stream/path_rules.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"
#include "cuda/kernel/calls.h"
#include "cuda/nccl/nccl_reduction.h"
#include "cuda/stream/kernel_codec_of.h"

namespace ringdist::gpu {
namespace {

// The length in front of what `lossless` sends has 32 bits; on the CPU a segment has its own.
Error too_long(const Codec& codec, int64_t count, DType dtype) {
  const auto coding = kernel_codec_of(codec, dtype);
  if (!coding || coding->code != Code::kLossless ||
      codec.max_bytes(count, dtype) <= std::numeric_limits<uint32_t>::max())
    return {};
  return Error(ErrorKind::kNotSupported,
               "ringdist: codec '" + std::string(codec.name()) + "' of " + std::to_string(count) +
                   " elements on a device; it takes less than 4 GiB in one piece");
}

}  // namespace

bool nccl_reduces(const OpSpec& request, bool has_fp8) {
  return !reduces(request.kind) ||
         nccl_reduction(request.dtype, request.reduce_op, has_fp8).has_value();
}

bool is_nccls_own(const OpSpec& request, bool has_fp8) {
  if (request.codec_map || !nccl_reduces(request, has_fp8)) return false;
  switch (request.kind) {
    case Collective::kAllreduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
      return true;
    case Collective::kAllgather:
    case Collective::kReduceScatter:
      return request.input_parts.empty() && request.output_parts.empty();
    default:
      return false;
  }
}

bool suits_mailboxes(const OpSpec& request, int size) {
  if (request.envelope) return false;
  if (request.codec_map) return true;
  // Ranks do not know each other's parts of an alltoall.
  const bool parts = !request.input_parts.empty() || !request.output_parts.empty();
  const size_t bytes = static_cast<size_t>(request.count) * dtype_size(request.dtype);
  return !parts && bytes >= kLeastByMailboxes && !schedule_refusal(request, size);
}

Error schedule_refusal(const OpSpec& request, int size) {
  if (reduces(request.kind) && size > SourceList::kMost)
    return Error(ErrorKind::kNotSupported,
                 "ringdist: " + std::string(collective_name(request.kind)) + " of " +
                     std::to_string(size) + " ranks' tensors on devices; at most " +
                     std::to_string(SourceList::kMost) + " reduce without NCCL");
  if (!request.codec_map) return {};
  for (const CodecMapPart& part : request.codec_map->parts)
    for (const CodecPtr& codec : {part.codecs.contribution, part.codecs.result})
      if (Error error = too_long(*codec, part.count, request.dtype)) return error;
  return {};
}

const Algorithm& stream_algorithm(Collective kind, const Algorithm* planned) {
  if (planned != nullptr && !planned->hierarchical) return *planned;
  const auto fits = [&](const Algorithm& one) {
    return one.supports(kind) && one.rank_ordered && one.serves_codecs && !one.hierarchical &&
           !one.only_for_few;
  };
  const auto found = std::ranges::find_if(algorithms(), fits);
  ringdist::check(found != algorithms().end(), "no algorithm without hosts for a collective");
  return *found;
}

}  // namespace ringdist::gpu
