#include "cuda/stream/device_capabilities.h"

#include <algorithm>

namespace ringdist::gpu {
namespace {

template <size_t kSize>
void put(const std::string& text, std::array<char, kSize>& out) {
  out.fill(0);
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), out.begin());
}

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

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

}  // namespace ringdist::gpu
