#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "base/scratch_pool.h"
#include "torch/ops/call.h"
#include "torch/ops/compression_spec.h"

namespace ringdist {

// Compresses the calls of a group: gives them their block maps. Any thread.
class CallCompressor {
 public:
  // `codecs` compress float SUMs and AVGs of at least kMinCompressed elements, without error
  // feedback.
  CallCompressor(int size, CodecPair codecs) : size_(size), codecs_(std::move(codecs)) {}

  // An allreduce, or a reduce-scatter whose inputs are each cut into one part per rank, as the
  // group's own codecs say.
  void apply_option(Call& call) const;

  // A call to which `given` contributes, as the caller of the call says. `memory` and what is
  // thrown: as of make_codec_map().
  void apply(Call& call, const at::Tensor& given, CompressionSpec coding,
             const Tensors& memory) const;

 private:
  // A tensor of a call, for its block map.
  Contribution contribution(const Call& call, const at::Tensor& tensor) const;
  // As many elements, in memory that is used again and again.
  at::Tensor shadow_of(const at::Tensor& residual) const;

  const int size_;
  const CodecPair codecs_;
  const std::shared_ptr<ScratchPool> shadows_ = std::make_shared<ScratchPool>();  // of residuals
};

}  // namespace ringdist
