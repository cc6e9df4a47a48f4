// The compressed forms of the backend's operations.
#include "torch/backend.h"
#include "torch/errors.h"

namespace ringdist {

Contribution ProcessGroupRing::reduced(const Call& call, std::string_view op,
                                       std::string_view argument) const {
  const int parts = call.request.kind == Collective::kReduceScatter ? getSize() : 1;
  return {op, argument, call.inputs[0], call.request.dtype, call.request.reduce_op, parts};
}

void ProcessGroupRing::apply_option(Call& call, const Contribution& contribution) const {
  if (codecs_.plain()) return;
  const bool adds =
      contribution.reduce_op == ReduceOp::kSum || contribution.reduce_op == ReduceOp::kAvg;
  const bool fits = contribution.dtype == DType::kFloat32 || is_half(contribution.dtype);
  if (!adds || !fits || contribution.tensor.numel() < kMinCompressed) return;
  auto blocks = make_blocks(contribution, {codecs_, {}}, {});
  throw_if(blocks.error());
  call.request.blocks = blocks.value();
}

c10::intrusive_ptr<c10d::Work> ProcessGroupRing::allreduce_coded(const at::Tensor& tensor,
                                                                 const c10d::AllreduceOptions& opts,
                                                                 const Coding& coding) {
  Call call = allreduce_call(tensor, opts);
  auto blocks = make_blocks(reduced(call, "all_reduce", "tensor"), coding, {tensor});
  throw_if(blocks.error());
  call.request.blocks = blocks.value();
  return run(std::move(call), opts.timeout);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupRing::allgather_coded(const at::Tensor& output,
                                                                 const at::Tensor& input,
                                                                 const c10d::AllgatherOptions& opts,
                                                                 const CodecPtr& codec) {
  Call call = allgather_call(output, input, opts);
  const Contribution contribution{"all_gather_into_tensor", "input", input, call.request.dtype,
                                  ReduceOp::kNone};
  auto blocks = make_blocks(contribution, {{codec, codec}, {}}, {});
  throw_if(blocks.error());
  call.request.blocks = blocks.value();
  return run(std::move(call), opts.timeout);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupRing::reduce_scatter_coded(
    const at::Tensor& output, const at::Tensor& input, const c10d::ReduceScatterOptions& opts,
    const Coding& coding) {
  Call call = reduce_scatter_call(output, input, opts);
  auto blocks =
      make_blocks(reduced(call, "reduce_scatter_tensor", "input"), coding, {input, output});
  throw_if(blocks.error());
  call.request.blocks = blocks.value();
  return run(std::move(call), opts.timeout);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupRing::allreduce_blocks(
    const std::vector<at::Tensor>& pieces, const c10d::AllreduceOptions& opts,
    std::shared_ptr<const BlockMap> blocks) {
  Call call = allreduce_call(pieces[0], opts);
  for (size_t i = 1; i < pieces.size(); ++i) {
    append(call.request.output, pieces[i]);
    call.request.count += pieces[i].numel();
    call.inputs.push_back(pieces[i]);
    call.outputs.push_back(pieces[i]);
    call.memory.push_back(pieces[i]);
  }
  call.request.blocks = std::move(blocks);
  return run(std::move(call), opts.timeout);
}

}  // namespace ringdist
