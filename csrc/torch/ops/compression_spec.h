// How one call is compressed: codecs and residual, checked against the tensors of the call, become
// the block map that the engine wants.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "codec/codec_map.h"

namespace ringdist {

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

}  // namespace ringdist
