// Which kernels have a codec's bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "cuda/api/cuda_api.h"
#include "cuda/kernel/calls.h"

namespace ringdist::gpu {

// None for `none`, which needs none. `dtype`: the op's.
std::optional<KernelCodec> kernel_codec_of(const Codec& codec, DType dtype = DType::kFloat32);

// Calls for an op's pieces that do not depend on each other, put on its stream by few launches:
// those of one coding share one, and so do those that do the same to elements.
class LaunchBatch {
 public:
  void encode(KernelCodec coding, const EncodeCall& call) { add(encodes_, coding, call); }
  void decode(KernelCodec coding, const DecodeCall& call) { add(decodes_, coding, call); }
  void run(Elements call) { elements_.push_back(call); }

  // All of them, in any order.
  Error enqueue(CudaApi& cuda, Stream stream) const;

 private:
  template <typename Call>
  using ByCoding = std::vector<std::pair<KernelCodec, std::vector<Call>>>;

  template <typename Call>
  static void add(ByCoding<Call>& to, KernelCodec coding, const Call& call);

  ByCoding<EncodeCall> encodes_;
  ByCoding<DecodeCall> decodes_;
  std::vector<Elements> elements_;
};

}  // namespace ringdist::gpu
