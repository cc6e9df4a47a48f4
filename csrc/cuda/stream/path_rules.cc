#include "cuda/stream/path_rules.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"
#include "cuda/api/nccl_api.h"
#include "cuda/kernel/calls.h"
#include "cuda/nccl/nccl_reduction.h"
#include "cuda/stream/host_mailboxes.h"
#include "cuda/stream/kernel_codec_of.h"

namespace ringdist::gpu {
namespace {

// An encoding of `lossless` has a length of 32 bits in front. On the host this limit does not
// matter, because each segment has a length of its own.
Error too_long(const Codec& codec, int64_t count, DType dtype) {
  const auto coding = kernel_codec_of(codec, dtype);
  if (!coding || coding->code != Code::kLossless ||
      codec.max_bytes(count, dtype) <= std::numeric_limits<uint32_t>::max())
    return {};
  return Error(ErrorKind::kNotSupported,
               "ringdist: codec '" + std::string(codec.name()) + "' of " + std::to_string(count) +
                   " elements on a device; it takes less than 4 GiB in one piece");
}

// Copies text to a fixed array, cut to fit and zero-terminated.
template <size_t kSize>
void put(const std::string& text, std::array<char, kSize>& out) {
  out.fill(0);
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), out.begin());
}

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

int size_of(const DevicePathQuery& question) {
  int out = 0;
  for (const auto& host : question.hosts) out += static_cast<int>(host.size());
  return out;
}

// Returns the result of why_not_nccl() for ranks that use the devices of their host in turn.
// Made-up identities differ exactly where the devices do.
std::string obstacle_of(const DevicePathQuery& question, const NcclInfo& nccl) {
  std::vector<int> ranks;
  std::vector<DeviceCapabilities> offers;
  for (size_t host = 0; host < question.hosts.size(); ++host)
    for (size_t i = 0; i < question.hosts[host].size(); ++i) {
      const auto device = static_cast<int>(i) % question.devices;
      DeviceCapabilities offer =
          DeviceCapabilities::of({}, "number " + std::to_string(device) + " of its host", nccl);
      offer.device[0] = static_cast<uint8_t>(device);
      offer.device[1] = static_cast<uint8_t>(device >> 8);
      offer.device[2] = static_cast<uint8_t>(host);
      offer.device[3] = static_cast<uint8_t>(host >> 8);
      ranks.push_back(question.hosts[host][i]);
      offers.push_back(offer);
    }
  return why_not_nccl(ranks, offers);
}

std::string algorithm_text(const DevicePathQuery& question) {
  const Algorithm& one =
      stream_algorithm(question.request.kind, find_algorithm(question.algorithm));
  return "algorithm '" + std::string(one.name) + "' on a stream";
}

// Returns why NCCL has no collective with the same results.
std::string why_no_own(const OpSpec& request, bool has_fp8) {
  if (request.codec_map) return "it is compressed";
  if (!reduces(request.kind) || nccl_reduces(request, has_fp8))
    return "NCCL has no such collective";
  return "NCCL has no " + std::string(reduce_op_name(request.reduce_op)) + " of " +
         std::string(dtype_name(request.dtype)) + " that does as the CPU's";
}

Error describe_by_nccl(const DevicePathQuery& question, const NcclInfo& nccl,
                       DevicePathChoice& out) {
  const OpSpec& request = question.request;
  if (is_nccls_own(request, NcclApi::has_fp8(nccl.version))) {
    out.how = "its own " + std::string(collective_name(request.kind));
    out.because = "NCCL has one that gives the same results; it chooses the algorithm";
    return {};
  }
  if (Error error = schedule_refusal(request, size_of(question))) return error;
  out.how = algorithm_text(question) + ", with ncclSend and ncclRecv between its steps";
  out.because = why_no_own(request, NcclApi::has_fp8(nccl.version));
  return {};
}

// Returns why the op does not use mailboxes.
std::string why_plain(const DevicePathQuery& question) {
  const int size = size_of(question);
  if (size == 1) return "there is one rank";
  if (question.hosts.size() > 1) return "ranks are on several hosts";
  if (!HostMailboxes::fit(size)) return "they are too many ranks for memory that all of them see";
  if (const Error error = schedule_refusal(question.request, size)) return error.message();
  return "it is of less than " + std::to_string(kLeastByMailboxes >> 10) + " KiB";
}

Error describe_by_host(const DevicePathQuery& question, DevicePathChoice& out) {
  const OpSpec& request = question.request;
  const int size = size_of(question);
  if (request.codec_map)
    if (Error error = schedule_refusal(request, size)) return error;
  if (suits_mailboxes(request, size) && question.hosts.size() == 1 && HostMailboxes::fit(size)) {
    out.how = algorithm_text(question) + ", whose copies go by pinned memory that all ranks map";
    out.because = request.codec_map ? "it is compressed, and all ranks are on one host"
                                    : "it is large, and all ranks are on one host";
    return {};
  }
  out.because = why_plain(question);
  if (request.codec_map) {
    out.how = algorithm_text(question) + "; encoded bytes go by pinned memory and the host";
  } else {
    out.how = "copies to pinned memory, the host's op, copies back";
    out.host_op = true;
  }
  return {};
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
  // In an alltoall, a rank does not have the sizes of other ranks' parts, so ranks could decide
  // differently.
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
           !one.only_for_small_groups;
  };
  const auto found = std::ranges::find_if(algorithms(), fits);
  ringdist::check(found != algorithms().end(), "no algorithm without hosts for a collective");
  return *found;
}

Result<DeviceCapabilities> DeviceCapabilities::make(CudaApi& cuda, int device,
                                                    const NcclInfo& nccl) {
  const auto identity = cuda.identity(device);
  if (!identity.ok()) return identity.error();
  const auto address = cuda.address(device);
  if (!address.ok()) return address.error();
  return of(identity.value(), address.value(), nccl);
}

DeviceCapabilities DeviceCapabilities::of(const std::array<uint8_t, 16>& device,
                                          const std::string& address, const NcclInfo& nccl) {
  DeviceCapabilities out{device, nccl.version, nccl.shares_devices, {}, {}};
  put(address, out.address);
  put(nccl.problem, out.problem);
  return out;
}

std::string why_not_nccl(const std::vector<int>& ranks,
                         const std::vector<DeviceCapabilities>& offers) {
  for (size_t i = 0; i < offers.size(); ++i)
    if (offers[i].nccl_version == 0)
      return rank_text(ranks[i]) + " has no NCCL (" + offers[i].problem.data() + ")";
  if (std::ranges::all_of(offers,
                          [](const DeviceCapabilities& one) { return one.shares_devices != 0; }))
    return "";
  for (size_t a = 0; a < offers.size(); ++a)
    for (size_t b = a + 1; b < offers.size(); ++b)
      if (offers[a].device == offers[b].device)
        return rank_text(ranks[a]) + " and " + rank_text(ranks[b]) + " use the same device, " +
               offers[a].address.data();
  return "";
}

Result<DevicePathChoice> explain_path(const DevicePathQuery& question, const NcclInfo& nccl) {
  DevicePathChoice out;
  const std::string obstacle = obstacle_of(question, nccl);
  if (question.path == "nccl" && !obstacle.empty())
    return Error(ErrorKind::kNotSupported, "ringdist: NCCL is asked for, but " + obstacle);
  out.by_nccl = question.path != "host" && obstacle.empty();
  if (!question.path.empty()) {
    out.why = "it is asked for";
  } else if (out.by_nccl) {
    out.why = nccl.shares_devices ? "each rank has NCCL, and may share its device"
                                  : "each rank has NCCL and a device of its own";
  } else {
    out.why = obstacle;
  }
  const Error error =
      out.by_nccl ? describe_by_nccl(question, nccl, out) : describe_by_host(question, out);
  if (error) return error;
  return out;
}

}  // namespace ringdist::gpu
