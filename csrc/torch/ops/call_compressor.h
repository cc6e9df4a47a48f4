// Compression of one call. Codecs and residual are checked against the call's tensors and become a
// codec map.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/scratch_pool.h"
#include "codec/codec_map.h"
#include "torch/ops/call.h"

namespace ringdist {

// How one call is compressed: codecs and residual, checked against the tensors of the call, become
// the block map that the engine wants.

// Below this many elements headers and latency outweigh what a codec saves: what compresses by
// itself (a group's option, a hook) leaves such tensors alone.
inline constexpr int64_t kMinCompressed = 1024;

// A stretch of a contribution that has codecs of its own.
struct CompressedPiece {
  int64_t count = 0;
  CodecPair codecs;
};

struct CompressionSpec {
  CodecPair codecs;
  at::Tensor residual;  // undefined: no error feedback
  at::Tensor next =
      {};  // as of CodecMapPart: as many elements as the residual; undefined: in place
  std::vector<CompressedPiece> pieces = {};  // of each part, all of it; empty: `codecs` for all
};

// What a call gives to the others.
struct Contribution {
  std::string_view op;        // for Errors: "all_reduce"
  std::string_view argument;  // the tensor's name there
  at::Tensor tensor;
  DType dtype;
  ReduceOp reduce_op;  // kNone: it is not reduced
  int parts = 1;       // of equal count
};

// Null if nothing is to be compressed. `memory` is what the op writes or reads besides. Errors:
// kNotSupported for a dtype that a codec does not take, kInvalidArgument for another reduction than
// SUM and AVG, for error feedback with a codec that is no contraction, and for a residual that is
// not one fp32 CPU element per element of the contribution, contiguous and of memory of its own,
// and for pieces that are not as many elements as a part.
Result<std::shared_ptr<const CodecMap>> make_codec_map(const Contribution& contribution,
                                                       const CompressionSpec& coding,
                                                       const std::vector<at::Tensor>& memory);

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
