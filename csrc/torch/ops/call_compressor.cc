#include "torch/ops/call_compressor.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <utility>
#include <vector>

#include "torch/errors.h"

namespace ringdist {

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

// What will be owed goes to memory of ours, and to the caller's residual once the op has succeeded.
void CallCompressor::apply(Call& call, const at::Tensor& given, CompressionSpec coding,
                           const Tensors& memory) const {
  if (coding.residual.defined() && size_ > 1) {  // alone nothing travels, nor is owed
    const at::Tensor& residual = coding.residual;
    coding.next = residual.is_cpu() ? shadow_of(residual) : at::empty_like(residual);
  }
  call.request.codec_map = value_of(make_codec_map(contribution(call, given), coding, memory));
  if (call.request.codec_map && coding.next.defined())
    call.staging.give_back(coding.residual.detach(), coding.next);
}

}  // namespace ringdist
