// Maps codecs to their kernels, and batches launches of kernels.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "cuda/api/cuda_api.h"
#include "cuda/kernel/calls.h"

namespace ringdist::gpu {

// Returns the kernels of a codec for values of `dtype`. Returns nullopt for "none", which needs
// none. Each other codec must have kernels; otherwise a check fails.
std::optional<KernelCodec> kernel_codec_of(const Codec& codec, DType dtype = DType::kFloat32);

// Collects independent calls for the pieces of an op, to enqueue them with few launches. Calls with
// equal KernelCodec share a launch, and so do calls on elements. Not thread-safe. The memory that
// the calls name must live until they have run on the stream.
class LaunchBatch {
 public:
  void encode(KernelCodec coding, const EncodeCall& call) { add(encodes_, coding, call); }
  void decode(KernelCodec coding, const DecodeCall& call) { add(decodes_, coding, call); }
  void run(Elements call) { elements_.push_back(call); }

  // Enqueues all calls, in any order. Returns the first error; calls after it are not enqueued.
  Error enqueue(CudaApi& cuda, Stream stream) const;

 private:
  template <typename Call>
  using ByCoding = std::vector<std::pair<KernelCodec, std::vector<Call>>>;

  template <typename Call>
  static void add(ByCoding<Call>& to, KernelCodec coding, const Call& call);

  // Calls by KernelCodec, in the order of the first call of each.
  ByCoding<EncodeCall> encodes_;
  ByCoding<DecodeCall> decodes_;
  std::vector<Elements> elements_;
};

}  // namespace ringdist::gpu
