// What PyTorch's dispatcher calls: has arguments checked and tensors turned into buffers (ops/),
// and hands the call to its runner. One instance serves all devices of a group. Any thread, without
// the GIL; ranks match ops by their order of call, sends and receives by rank and tag.
// docs/operations.md says what each takes.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "engine/reconfiguration.h"
#include "torch/active_group.h"
#include "torch/base/errors.h"
#include "torch/base/features.h"

namespace ringdist {

class ProcessGroupRing final : public c10d::Backend {
 public:
  // `codecs` compress the group's float SUMs and AVGs of at least kMinCompressed elements, without
  // error feedback.
  ProcessGroupRing(std::shared_ptr<Communicator> communicator, CodecPair codecs);
  // Of a group whose members reconfigure() chooses; before that it has none, and no operation
  // works.
  ProcessGroupRing(std::shared_ptr<Reconfiguration> reconfiguration, int rank, int size);
  ~ProcessGroupRing() override;

  const std::string getBackendName() const override { return "ringdist"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override {
    active_.set_timeout(value_of(checked_timeout("set_timeout", timeout)));
  }
  void setSequenceNumberForGroup() override {}  // counted from creation on, the same on all ranks
  uint64_t getSequenceNumberForGroup() override { return active_.sequence_number(); }
  c10d::ErrorType getError() override { return active_.error(getRank()); }
  void abort() override { active_.abort(getRank()); }
  // Waits for the ops in flight, each of which ends by its timeout, and leaves the group.
  void shutdown() override { active_.shutdown(); }

  // A group of some of these ranks, given as ranks of this one; null on the others. All of `ranks`
  // call it, in the same order as other splits; where collectives on devices went by NCCL before,
  // all ranks of this group do, as split_group() does, in the same order as those. Raises: as such
  // a collective.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;

#if RINGDIST_TORCH_HAS_RECONFIGURE
  // Of init_process_group(enable_reconfigure=True). A handle is what others need to reach this
  // process, so no store is needed: all members get the same handles by other means, and call
  // reconfigure() with them and a new uuid. It returns when all have found each other; an attempt
  // that fails leaves the members as they were. Ranks are the order of a list of handles, or of a
  // set that is sorted. Raises, besides what forming a group does, ArgumentError: the uuid was used
  // before; a handle is none, or is there twice; this process' own is missing; NotSupportedError: a
  // group without that flag. Not while another thread does so.
  bool supportsReconfigure() const override { return active_.is_reconfigured(); }
  c10d::ReconfigureHandle get_reconfigure_handle() const override { return active_.handle(); }
  WorkPtr reconfigure(const c10d::ReconfigureOptions& opts) override;
#endif

  // The group without these ranks of it, for torch.distributed.shrink_group: all others call it
  // alike. `flags`: 1, what is in flight here ends with an error first. `opts` count for nothing:
  // options and timeout are this group's.
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> shrink(
      const std::vector<int64_t>& ranks_to_exclude, int flags = 0,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts = nullptr) override;

  // What this thread calls between the two is started by the second one, as a whole, and returns
  // that one's Work. Asking that Work for its outcome before starts it, too.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

#if RINGDIST_TORCH_HAS_ABORT_HOOKS
  // Called once, when the group has failed or was aborted, without the GIL: by a thread of ours or
  // by the first wait() that throws for this reason; all of those throw when the hooks have
  // returned.
  void registerAbortHook(int64_t hook_id, c10d::AbortHook hook) override {
    active_.add_failure_hook(hook_id, std::move(hook));
  }
  void unregisterAbortHook(int64_t hook_id) override { active_.remove_failure_hook(hook_id); }
#endif
#if RINGDIST_TORCH_HAS_COMPLETION_HOOKS
  bool supportsAbortHooks() const override { return true; }
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(int64_t hook_id, c10d::CompletionHook hook) override;
  void unregisterCompletionHook(int64_t hook_id) override { active_.remove_success_hook(hook_id); }
#endif

  // Each raises ValueError or TypeError for arguments that it does not take, before anything is
  // sent.
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts = {}) override;
  // Sparse (COO) tensors go to allreduce_sparse.
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts = {}) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts = {}) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts = {}) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts = {}) override;
  // The outputs may differ in size: the input is as large as this rank's output.
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts = {}) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts = {}) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts = {}) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts = {}) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts = {}) override;
#if RINGDIST_TORCH_HAS_GATHER_INTO_TENSOR
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input,
                             const c10d::GatherOptions& opts = {}) override;
#endif
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& opts = {}) override;
  // The inputs may differ in size: the output is as large as this rank's input.
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts = {}) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts = {}) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts = {}) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts = {}) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& opts = {}) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  // Devices are ignored: all ranks of the group meet on the host.
  WorkPtr barrier(const c10d::BarrierOptions& opts = {}) override;
  // Names the lowest rank that did not come, or all of them, and ends the group.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool all_ranks = false) override;

  // As the operations of similar name, with codecs of their own: the group's do not apply. Besides,
  // they raise what make_codec_map() returns.
  WorkPtr allreduce_compressed(const at::Tensor& tensor, const c10d::AllreduceOptions& opts,
                               const CompressionSpec& coding);
  // The sum of residuals that CompressState.state_dict() asks for: messages say so.
  WorkPtr allreduce_of_state(const at::Tensor& tensor);
  WorkPtr allgather_compressed(const at::Tensor& output, const at::Tensor& input,
                               const c10d::AllgatherOptions& opts, const CompressionSpec& coding);
  WorkPtr reduce_scatter_compressed(const at::Tensor& output, const at::Tensor& input,
                                    const c10d::ReduceScatterOptions& opts,
                                    const CompressionSpec& coding);
  // All-reduces contiguous tensors, at least one, as one op with a block map made by the caller;
  // null: uncompressed.
  WorkPtr allreduce_with_codec_map(const Tensors& pieces, const c10d::AllreduceOptions& opts,
                                   std::shared_ptr<const CodecMap> map);

  // What goes on of the group when members were lost: see Communicator::shrink(), whose errors it
  // raises. All who stay call it; this group has failed afterwards.
  struct Next {
    c10::intrusive_ptr<ProcessGroupRing> backend;
    ShrinkResult shrunk;
  };
  Next next_generation(std::chrono::milliseconds timeout);
  // Newcomers may come from now on: see Communicator::admit(), whose errors it raises.
  void admit(const std::string& job, const std::string& note, uint32_t most) {
    throw_if(active_.current()->communicator->admit(job, note, most));
  }

  // See Communicator::give_up(), whose errors it raises.
  void give_up(int rank, const std::string& why) {
    throw_if(active_.current()->communicator->give_up(rank, why));
  }

  // This process becomes a member of the group that takes newcomers at `options.store`: see
  // Admission, whose errors it raises.
  struct Joined {
    Next next;
    std::string name;  // of the group's first generation
    std::string note;  // of admit()
  };
  static Joined join(std::shared_ptr<Context> context, CommunicatorOptions options, std::string job,
                     std::chrono::milliseconds timeout);

  // Raises where there is none yet.
  std::shared_ptr<Communicator> communicator() const { return active_.current()->communicator; }

 private:
  ActiveGroupHolder active_;
};

}  // namespace ringdist
