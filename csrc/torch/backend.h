// What PyTorch's dispatcher calls: checks arguments, turns tensors into buffers, and hands an op to
// the communicator. One instance serves all devices of a group. Any thread, without the GIL; ranks
// match ops by their order of call.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "engine/communicator.h"
#include "torch/coding.h"
#include "torch/tensors.h"

namespace ringdist {

class ProcessGroupRing final : public c10d::Backend {
 public:
  // `codecs` compress the group's float SUMs and AVGs of at least kMinCompressed elements, without
  // error feedback.
  ProcessGroupRing(std::shared_ptr<Communicator> communicator, CodecPair codecs);
  ~ProcessGroupRing() override;

  const std::string getBackendName() const override { return "ringdist"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}  // counted from creation on, the same on all ranks
  uint64_t getSequenceNumberForGroup() override { return communicator_->sequence_number(); }
  c10d::ErrorType getError() override;
  void abort() override;
  // Waits for the ops in flight, each of which ends by its timeout, and leaves the group.
  void shutdown() override;

  // Each raises ValueError or TypeError for arguments that it does not take, before anything is
  // sent.
  c10::intrusive_ptr<c10d::Work> broadcast(
      std::vector<at::Tensor>& tensors,
      const c10d::BroadcastOptions& opts = c10d::BroadcastOptions()) override;
  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceOptions& opts = c10d::AllreduceOptions()) override;
  c10::intrusive_ptr<c10d::Work> allgather(
      std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& opts = c10d::AllgatherOptions()) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::AllgatherOptions& opts = c10d::AllgatherOptions()) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& opts = c10d::ReduceScatterOptions()) override;
  c10::intrusive_ptr<c10d::Work> barrier(
      const c10d::BarrierOptions& opts = c10d::BarrierOptions()) override;

  // As the operations of similar name, with codecs of their own: the group's do not apply. Besides,
  // they raise what make_blocks() returns.
  c10::intrusive_ptr<c10d::Work> allreduce_coded(const at::Tensor& tensor,
                                                 const c10d::AllreduceOptions& opts,
                                                 const Coding& coding);
  c10::intrusive_ptr<c10d::Work> allgather_coded(const at::Tensor& output, const at::Tensor& input,
                                                 const c10d::AllgatherOptions& opts,
                                                 const CodecPtr& codec);
  c10::intrusive_ptr<c10d::Work> reduce_scatter_coded(const at::Tensor& output,
                                                      const at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& opts,
                                                      const Coding& coding);
  // All-reduces contiguous tensors, at least one, as one op with a block map made by the caller;
  // null: uncompressed.
  c10::intrusive_ptr<c10d::Work> allreduce_blocks(const std::vector<at::Tensor>& pieces,
                                                  const c10d::AllreduceOptions& opts,
                                                  std::shared_ptr<const BlockMap> blocks);

  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }

 private:
  // What an op needs beyond its buffers.
  struct Call {
    OpRequest request;
    Staging staging;
    std::vector<at::Tensor> inputs;   // for the profiler
    std::vector<at::Tensor> outputs;  // for the Future
    std::vector<at::Tensor> memory;   // behind the buffers
    c10d::OpType type;
    const char* title;
    bool async;
  };
  Call allreduce_call(const at::Tensor& tensor, const c10d::AllreduceOptions& opts);
  Call allgather_call(const at::Tensor& output, const at::Tensor& input,
                      const c10d::AllgatherOptions& opts);
  Call reduce_scatter_call(const at::Tensor& output, const at::Tensor& input,
                           const c10d::ReduceScatterOptions& opts);
  c10::intrusive_ptr<c10d::Work> run(Call call, std::chrono::milliseconds timeout);
  Contribution reduced(const Call& call, std::string_view op, std::string_view argument) const;
  // Compresses the call as the group's own option says.
  void apply_option(Call& call, const Contribution& contribution) const;
  ReduceOp reduce_op(std::string_view op, const c10d::ReduceOp& given) const;

  const std::shared_ptr<Communicator> communicator_;
  const CodecPair codecs_;
};

}  // namespace ringdist
