#include "torch/ops/call_compressor.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "codec/residual.h"
#include "torch/base/errors.h"
#include "torch/base/tensors.h"

namespace ringdist {
namespace {

Error refuse(ErrorKind kind, const Contribution& contribution, const std::string& what) {
  return Error(kind, "ringdist: " + std::string(contribution.op) + ": " + what);
}

Error check_values(const Contribution& c, const CodecPair& codecs) {
  for (const CodecPtr& codec : {codecs.contribution, codecs.result})
    if (c.dtype != DType::kFloat32 && !is_half(c.dtype))
      return refuse(ErrorKind::kNotSupported, c,
                    "codec '" + codecs.name() + "' takes float32, bfloat16 or float16; " +
                        std::string(c.argument) + " is " + describe(c.tensor));
    else if (!codec->supports(c.dtype))
      return refuse(ErrorKind::kNotSupported, c,
                    "codec '" + std::string(codec->name()) + "' does not take " +
                        std::string(dtype_name(c.dtype)) + "; " + std::string(c.argument) + " is " +
                        describe(c.tensor));
  if (c.reduce_op == ReduceOp::kNone || c.reduce_op == ReduceOp::kSum ||
      c.reduce_op == ReduceOp::kAvg)
    return {};
  return refuse(ErrorKind::kInvalidArgument, c,
                "codec '" + codecs.name() + "' takes op SUM or AVG, got " +
                    std::string(reduce_op_name(c.reduce_op)));
}

Error check_residual(const Contribution& c, const CompressionSpec& coding,
                     const std::vector<at::Tensor>& memory) {
  const at::Tensor& residual = coding.residual;
  if (!may_use_feedback(coding.codecs))
    return refuse(ErrorKind::kInvalidArgument, c,
                  "residual given with codec '" + coding.codecs.name() +
                      "', which may lose more than it was given: error feedback would diverge");
  if (Error error = check_tensor(c.op, "residual", residual, /*written=*/true)) return error;
  if (residual.device() != c.tensor.device())
    return refuse(ErrorKind::kInvalidArgument, c,
                  "residual is on device " + residual.device().str() + ", but " +
                      std::string(c.argument) + " on " + c.tensor.device().str());
  if (residual.scalar_type() != at::kFloat)
    return refuse(ErrorKind::kNotSupported, c,
                  "residual must be float32, it is " + describe(residual));
  if (residual.numel() != c.tensor.numel())
    return refuse(ErrorKind::kInvalidArgument, c,
                  "residual must have as many elements as " + std::string(c.argument) + ", " +
                      describe(c.tensor) + "; it is " + describe(residual));
  if (!residual.is_contiguous())
    return refuse(ErrorKind::kInvalidArgument, c,
                  "residual must be contiguous, it is " + describe(residual) + " with strides " +
                      c10::str(residual.strides()));
  for (const at::Tensor& other : memory)
    if (share_memory(residual, other))
      return refuse(ErrorKind::kInvalidArgument, c,
                    "residual shares memory with a tensor of the call; it needs its own");
  return {};
}

}  // namespace

Result<std::shared_ptr<const CodecMap>> make_codec_map(const Contribution& contribution,
                                                       const CompressionSpec& coding,
                                                       const std::vector<at::Tensor>& memory) {
  const bool feedback = coding.residual.defined();
  const int64_t count = contribution.tensor.numel();
  const int64_t part = count / contribution.parts;
  std::vector<CompressedPiece> pieces = coding.pieces;
  if (pieces.empty()) pieces.push_back({part, coding.codecs});
  const auto is_plain = [](const CompressedPiece& piece) { return piece.codecs.plain(); };
  if (std::ranges::all_of(pieces, is_plain) && !feedback) return std::shared_ptr<const CodecMap>();
  int64_t covered = 0;
  for (const CompressedPiece& piece : pieces) {
    if (Error error = check_values(contribution, piece.codecs)) return error;
    covered += piece.count;
  }
  if (covered != part)
    return refuse(
        ErrorKind::kInvalidArgument, contribution,
        "pieces have " + std::to_string(covered) + " elements, a part has " + std::to_string(part));
  if (feedback)
    if (Error error = check_residual(contribution, coding, memory)) return error;
  if (count == 0) return std::shared_ptr<const CodecMap>();
  auto map = std::make_shared<CodecMap>();
  auto* residual = feedback ? coding.residual.data_ptr<float>() : nullptr;
  auto* next = coding.next.defined() ? coding.next.data_ptr<float>() : residual;
  for (int i = 0; i < contribution.parts; ++i)
    for (const CompressedPiece& piece : pieces) {
      const int64_t offset = map->count();
      map->parts.push_back({offset, piece.count, piece.codecs});
      if (!feedback) continue;
      map->parts.back().residual = residual + offset;
      map->parts.back().next = next + offset;
    }
  if (feedback)
    map->keep_alive = std::make_shared<std::vector<at::Tensor>>(
        std::vector{coding.residual.detach(), coding.next});
  return std::shared_ptr<const CodecMap>(std::move(map));
}

Contribution CallCompressor::contribution(const Call& call, const at::Tensor& tensor) const {
  const DType dtype = call.request.dtype;
  const ReduceOp reduce_op = call.request.reduce_op;
  if (call.request.kind == Collective::kAllgather)
    return {"all_gather_into_tensor", "input", tensor, dtype, reduce_op};
  if (call.request.kind == Collective::kReduceScatter)
    return {"reduce_scatter_tensor", "input", tensor, dtype, reduce_op, size_};
  return {"all_reduce", "tensor", tensor, dtype, reduce_op};
}

void CallCompressor::apply_option(Call& call) const {
  if (codecs_.plain()) return;
  const OpRequest& request = call.request;
  const bool adds = request.reduce_op == ReduceOp::kSum || request.reduce_op == ReduceOp::kAvg;
  const bool fits = request.dtype == DType::kFloat32 || is_half(request.dtype);
  const int parts = request.kind == Collective::kReduceScatter ? size_ : 1;
  if (!adds || !fits || request.count * parts < kMinCompressed) return;
  std::vector<std::shared_ptr<const CodecMap>> maps;
  for (const at::Tensor& input : call.inputs) {
    auto blocks = value_of(make_codec_map(contribution(call, input), {codecs_, {}}, {}));
    if (blocks) maps.push_back(std::move(blocks));
  }
  auto whole = std::make_shared<CodecMap>();
  for (int part = 0; part < parts; ++part)
    for (const auto& map : maps) {
      // The buffer has part r of all inputs before part r + 1, as append_by_rank() puts them.
      CodecMapPart piece = map->parts[static_cast<size_t>(part)];
      piece.offset = whole->count();
      whole->parts.push_back(std::move(piece));
    }
  call.request.codec_map = std::move(whole);
}

at::Tensor CallCompressor::shadow_of(const at::Tensor& residual) const {
  const PooledBuffer block(shadows_, residual.nbytes());
  return at::from_blob(
      block.bytes().data(), residual.sizes(), [block](void*) {},
      at::TensorOptions(at::kFloat).device(at::kCPU));
}

// The new residual is written to a separate tensor. It is copied to the caller's residual after the
// op has succeeded.
void CallCompressor::apply(Call& call, const at::Tensor& given, CompressionSpec coding,
                           const Tensors& memory) const {
  if (coding.residual.defined() && size_ > 1) {  // a single rank sends nothing, so nothing is lost
    const at::Tensor& residual = coding.residual;
    coding.next = residual.is_cpu() ? shadow_of(residual) : at::empty_like(residual);
  }
  call.request.codec_map = value_of(make_codec_map(contribution(call, given), coding, memory));
  if (call.request.codec_map && coding.next.defined())
    call.staging.give_back(coding.residual.detach(), coding.next);
}

}  // namespace ringdist
