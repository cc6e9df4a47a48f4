// CallCompressor: compresses single calls. It checks codecs and residual against the call's tensors
// and makes the codec map that the engine uses.
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

// Calls with fewer elements are not compressed by a group's option or a hook: headers and latency
// would outweigh the savings.
inline constexpr int64_t kMinCompressed = 1024;

// A range of a contribution that has codecs of its own.
struct CompressedPiece {
  int64_t count = 0;
  CodecPair codecs;
};

// Compression of one call, as its caller wants it.
struct CompressionSpec {
  CodecPair codecs;
  at::Tensor residual;  // undefined: no error feedback
  // The new residual, with as many elements; if undefined, the residual is updated in place. Not
  // read by CallCompressor::apply().
  at::Tensor next = {};
  // Pieces that cover each part; if empty, `codecs` apply to all. Error feedback is checked for
  // `codecs` only.
  std::vector<CompressedPiece> pieces = {};
};

// The tensor that a call contributes, for the codec map.
struct Contribution {
  std::string_view op;        // for Errors: "all_reduce"
  std::string_view argument;  // the tensor's name there
  at::Tensor tensor;
  DType dtype;
  ReduceOp reduce_op;  // kNone: it is not reduced
  int parts = 1;       // number of parts of equal size
};

// Makes the codec map of a call. Returns null if nothing is to be compressed. `memory` lists the
// other tensors of the op, which must not overlap the residual.
//
// Fails with kNotSupported for a dtype that a codec cannot encode. Fails with kInvalidArgument for
// a reduction other than SUM and AVG, and for error feedback with a codec that may increase the
// error. The residual must be contiguous fp32, with one element per element of the contribution, on
// its device and in memory of its own; one of another dtype fails with kNotSupported. `pieces` must
// have as many elements as a part.
Result<std::shared_ptr<const CodecMap>> make_codec_map(const Contribution& contribution,
                                                       const CompressionSpec& coding,
                                                       const std::vector<at::Tensor>& memory);

// Compresses the calls of a group by setting their codec maps. Any thread.
class CallCompressor {
 public:
  // `codecs` compress SUM and AVG operations on floats with at least kMinCompressed elements,
  // without error feedback.
  CallCompressor(int size, CodecPair codecs) : size_(size), codecs_(std::move(codecs)) {}

  // Compresses a call with the group's codecs, if it qualifies. The call is an allreduce, or a
  // reduce-scatter with inputs that each consist of one part per rank. Throws if a codec does not
  // take the dtype.
  void apply_option(Call& call) const;

  // Compresses a call to which `given` contributes, as its caller wants. The new residual is copied
  // to `coding.residual` once the op has succeeded, so a failed op leaves it unchanged. `memory`
  // and exceptions are those of make_codec_map().
  void apply(Call& call, const at::Tensor& given, CompressionSpec coding,
             const Tensors& memory) const;

 private:
  // Describes a tensor of a call for make_codec_map().
  Contribution contribution(const Call& call, const at::Tensor& tensor) const;
  // Returns a tensor like the residual, uninitialized, in pooled memory of the host. The memory
  // returns to the pool with the last reference to the tensor.
  at::Tensor shadow_of(const at::Tensor& residual) const;

  const int size_;
  const CodecPair codecs_;
  // Memory for new residuals.
  const std::shared_ptr<ScratchPool> shadows_ = std::make_shared<ScratchPool>();
};

}  // namespace ringdist
