#include "cuda/stream/call_batch.h"

#include <algorithm>

#include "base/check.h"
#include "cuda/stream/coding_of.h"

namespace ringdist::gpu {

template <typename Call>
void CallBatch::add(ByCoding<Call>& to, const Codec& codec, const Call& call) {
  const auto coding = coding_of(codec);
  ringdist::check(coding.has_value(), "a codec without kernels");
  const auto at = std::ranges::find(to, *coding, &std::pair<Coding, std::vector<Call>>::first);
  auto& calls = at != to.end() ? at->second : to.emplace_back(*coding, std::vector<Call>()).second;
  calls.push_back(call);
}

template void CallBatch::add(ByCoding<EncodeCall>&, const Codec&, const EncodeCall&);
template void CallBatch::add(ByCoding<DecodeCall>&, const Codec&, const DecodeCall&);

Error CallBatch::enqueue(CudaApi& cuda, Stream stream) const {
  for (const auto& [coding, calls] : encodes_)
    if (Error error = cuda.encode(coding, calls, stream)) return error;
  for (const auto& [coding, calls] : decodes_)
    if (Error error = cuda.decode(coding, calls, stream)) return error;
  return elements_.empty() ? Error() : cuda.run(elements_, stream);
}

}  // namespace ringdist::gpu
