#include "cuda/stream/launch_batch.h"

#include <algorithm>

namespace ringdist::gpu {

template <typename Call>
void LaunchBatch::add(ByCoding<Call>& to, KernelCodec coding, const Call& call) {
  const auto at = std::ranges::find(to, coding, &std::pair<KernelCodec, std::vector<Call>>::first);
  auto& calls = at != to.end() ? at->second : to.emplace_back(coding, std::vector<Call>()).second;
  calls.push_back(call);
}

template void LaunchBatch::add(ByCoding<EncodeCall>&, KernelCodec, const EncodeCall&);
template void LaunchBatch::add(ByCoding<DecodeCall>&, KernelCodec, const DecodeCall&);

Error LaunchBatch::enqueue(CudaApi& cuda, Stream stream) const {
  for (const auto& [coding, calls] : encodes_)
    if (Error error = cuda.encode(coding, calls, stream)) return error;
  for (const auto& [coding, calls] : decodes_)
    if (Error error = cuda.decode(coding, calls, stream)) return error;
  return elements_.empty() ? Error() : cuda.run(elements_, stream);
}

}  // namespace ringdist::gpu
