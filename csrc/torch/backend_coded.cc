// The compressed forms of the backend's operations.
#include <ATen/ops/from_blob.h>

#include "torch/backend.h"
#include "torch/errors.h"

namespace ringdist {

Contribution ProcessGroupRing::reduced(const Call& call, const at::Tensor& tensor) const {
  const bool scatters = call.request.kind == Collective::kReduceScatter;
  return {scatters ? "reduce_scatter_tensor" : "all_reduce",
          scatters ? "input" : "tensor",
          tensor,
          call.request.dtype,
          call.request.reduce_op,
          scatters ? getSize() : 1};
}

void ProcessGroupRing::apply_option(Call& call) const {
  if (codecs_.plain()) return;
  const OpRequest& request = call.request;
  const bool adds = request.reduce_op == ReduceOp::kSum || request.reduce_op == ReduceOp::kAvg;
  const bool fits = request.dtype == DType::kFloat32 || is_half(request.dtype);
  const int parts = request.kind == Collective::kReduceScatter ? getSize() : 1;
  if (!adds || !fits || request.count * parts < kMinCompressed) return;
  std::vector<std::shared_ptr<const BlockMap>> maps;
  for (const at::Tensor& input : call.inputs) {
    auto blocks = make_blocks(reduced(call, input), {codecs_, {}}, {});
    throw_if(blocks.error());
    if (blocks.value()) maps.push_back(blocks.value());
  }
  auto whole = std::make_shared<BlockMap>();
  for (int part = 0; part < parts; ++part)
    for (const auto& map : maps) {
      BlockPart piece = map->parts[static_cast<size_t>(part)];
      piece.offset = whole->count();
      whole->parts.push_back(std::move(piece));
    }
  call.request.blocks = std::move(whole);
}

// What will be owed goes to memory of ours, and to the caller's residual once the op has succeeded.
void ProcessGroupRing::compress(Call& call, const at::Tensor& contribution, Coding coding,
                                const Tensors& memory) const {
  if (coding.residual.defined() && getSize() > 1) {  // alone nothing travels, nor is owed
    const at::Tensor& residual = coding.residual;
    const auto bytes = static_cast<size_t>(residual.numel()) * sizeof(float);
    const HeldBytes block(shadows_, bytes);
    coding.next =
        at::from_blob(block.bytes().data(), residual.sizes(), [block](void*) {}, at::kFloat);
  }
  auto blocks = make_blocks(reduced(call, contribution), coding, memory);
  throw_if(blocks.error());
  call.request.blocks = blocks.value();
  if (blocks.value() && coding.next.defined())
    call.staging.give_back(coding.residual.detach(), coding.next);
}

ProcessGroupRing::WorkPtr ProcessGroupRing::allreduce_coded(const at::Tensor& tensor,
                                                            const c10d::AllreduceOptions& opts,
                                                            const Coding& coding) {
  return run([&] {
    throw_if(check_tensor("all_reduce", "tensor", tensor, /*written=*/true));
    Call call = allreduce_call({tensor}, "tensor", opts);
    compress(call, tensor, coding, {tensor});
    return call;
  });
}

ProcessGroupRing::WorkPtr ProcessGroupRing::allreduce_of_state(const at::Tensor& tensor) {
  return run([&] {
    Call call = allreduce_call({tensor}, "tensor", {});
    call.request.of_state = true;
    return call;
  });
}

ProcessGroupRing::WorkPtr ProcessGroupRing::allgather_coded(const at::Tensor& output,
                                                            const at::Tensor& input,
                                                            const c10d::AllgatherOptions& opts,
                                                            const Coding& coding) {
  return run([&] {
    check_allgather_into("", output, input);
    Call call = allgather_into_call({output}, {input}, c10d::OpType::_ALLGATHER_BASE, opts);
    const Contribution contribution{"all_gather_into_tensor", "input", input, call.request.dtype,
                                    ReduceOp::kNone};
    auto blocks = make_blocks(contribution, coding, {});
    throw_if(blocks.error());
    call.request.blocks = blocks.value();
    return call;
  });
}

ProcessGroupRing::WorkPtr ProcessGroupRing::reduce_scatter_coded(
    const at::Tensor& output, const at::Tensor& input, const c10d::ReduceScatterOptions& opts,
    const Coding& coding) {
  return run([&] {
    check_reduce_scatter("", output, input);
    Call call =
        reduce_scatter_call({output}, {input}, "input", c10d::OpType::_REDUCE_SCATTER_BASE, opts);
    compress(call, input, coding, {input, output});
    return call;
  });
}

ProcessGroupRing::WorkPtr ProcessGroupRing::allreduce_blocks(
    const Tensors& pieces, const c10d::AllreduceOptions& opts,
    std::shared_ptr<const BlockMap> blocks) {
  return run([&] {
    Call call = allreduce_call(pieces, "tensor", opts);
    call.request.blocks = std::move(blocks);
    return call;
  });
}

}  // namespace ringdist
