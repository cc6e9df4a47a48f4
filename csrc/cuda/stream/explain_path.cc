#include "cuda/stream/explain_path.h"

#include <string>

#include "cuda/api/nccl_api.h"
#include "cuda/stream/host_mailboxes.h"
#include "cuda/stream/path_rules.h"

namespace ringdist::gpu {
namespace {

int size_of(const DevicePathQuery& question) {
  int out = 0;
  for (const auto& host : question.hosts) out += static_cast<int>(host.size());
  return out;
}

// A host's ranks take its devices in turn.
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

// Why NCCL has nothing that does just that.
std::string why_no_own(const OpSpec& request) {
  if (request.codec_map) return "it is compressed";
  if (!reduces(request.kind)) return "NCCL has no such collective";
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
  out.because = why_no_own(request);
  return {};
}

// Why not by boxes.
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
