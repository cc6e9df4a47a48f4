#include "cuda/stream/call_batch.h"

#include <algorithm>

namespace ringdist::gpu {

template <typename Call>
void CallBatch::add(ByCoding<Call>& to, Coding coding, const Call& call) {
  const auto at = std::ranges::find(to, coding, &std::pair<Coding, std::vector<Call>>::first);
  auto& calls = at != to.end() ? at->second : to.emplace_back(coding, std::vector<Call>()).second;
  calls.push_back(call);
}

template void CallBatch::add(ByCoding<EncodeCall>&, Coding, const EncodeCall&);
template void CallBatch::add(ByCoding<DecodeCall>&, Coding, const DecodeCall&);

Error CallBatch::enqueue(CudaApi& cuda, Stream stream) const {
  for (const auto& [coding, calls] : encodes_)
    if (Error error = cuda.encode(coding, calls, stream)) return error;
  for (const auto& [coding, calls] : decodes_)
    if (Error error = cuda.decode(coding, calls, stream)) return error;
  return elements_.empty() ? Error() : cuda.run(elements_, stream);
}

}  // namespace ringdist::gpu
