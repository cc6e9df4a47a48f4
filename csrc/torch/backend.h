// ProcessGroupRing: the c10d::Backend that PyTorch's dispatcher calls. It checks arguments, turns
// tensors into buffers (ops/) and submits each call (CallSubmitter). One instance serves all
// devices of a group.
//
// Any thread, without the GIL. Ranks match collectives by their order, and sends and receives by
// rank and tag. docs/reference/operations.md describes the arguments of each operation.
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

// The backend "ringdist". Owned by PyTorch's ProcessGroup.
class ProcessGroupRing final : public c10d::Backend {
 public:
  // `codecs` compress the group's SUM and AVG operations on floats with at least kMinCompressed
  // elements, without error feedback.
  ProcessGroupRing(std::shared_ptr<Communicator> communicator, CodecPair codecs);
  // Makes a group with members that reconfigure() sets. Until the first reconfigure(), no operation
  // works.
  ProcessGroupRing(std::shared_ptr<Reconfiguration> reconfiguration, int rank, int size);
  // Does not wait. Ops in flight may still end, so that other ranks do not wait in vain.
  ~ProcessGroupRing() override;

  const std::string getBackendName() const override { return "ringdist"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  // Sets the default timeout of later operations, and of the groups that later calls of
  // reconfigure() create. Raises ArgumentError if it is negative.
  void setTimeout(std::chrono::milliseconds timeout) override {
    active_.set_timeout(value_of(checked_timeout("set_timeout", timeout)));
  }
  // Numbers count from creation on, equally on all ranks.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return active_.sequence_number(); }
  // Returns the kind of the failure, and whether another rank caused it.
  c10d::ErrorType getError() override { return active_.error(getRank()); }
  // Fails the group on all ranks.
  void abort() override { active_.abort(getRank()); }
  // Waits for the ops in flight, each of which ends by its timeout, and leaves the group.
  void shutdown() override { active_.shutdown(); }

  // Creates a group of some of these ranks, numbered as in this group; returns null on other ranks.
  // All of `ranks` have to call it, in the same order as other splits. If earlier collectives on
  // devices used NCCL, all ranks of this group have to call it, as split_group() does, in their
  // order with those collectives. Raises what such a collective raises.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;

#if RINGDIST_TORCH_HAS_RECONFIGURE
  // The operations of init_process_group(enable_reconfigure=True). They need no store: a handle
  // contains all that is needed to reach a process. All members get the same handles by other
  // means, and call reconfigure() with them and a new uuid. It returns when all have found each
  // other. A failed attempt leaves the members as they were. Ranks follow the order of a list of
  // handles, or of a sorted set.
  //
  // Besides errors of forming a group, raises ArgumentError if the uuid was used before, or if a
  // handle is invalid, given twice or this process' own is missing. Raises NotSupportedError for a
  // group without that flag. One thread at a time.
  bool supportsReconfigure() const override { return active_.is_reconfigured(); }
  c10d::ReconfigureHandle get_reconfigure_handle() const override { return active_.handle(); }
  WorkPtr reconfigure(const c10d::ReconfigureOptions& opts) override;
#endif

  // Creates the group without `ranks_to_exclude`, for torch.distributed.shrink_group. All other
  // ranks have to call it alike. With `flags` 1, ops in flight on this rank first end with an
  // error. `opts` are ignored: options and timeout are this group's.
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> shrink(
      const std::vector<int64_t>& ranks_to_exclude, int flags = 0,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts = nullptr) override;

  // Operations that this thread calls between the two are collected. endCoalescing() starts them as
  // a whole and returns one Work. A query of that Work for its outcome starts them, too.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

#if RINGDIST_TORCH_HAS_ABORT_HOOKS
  // Hooks for the failure of the group. They are called once, without the GIL, by a pool thread or
  // by the first wait() that throws for this reason. All such wait()s throw only after the hooks
  // have returned.
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

  // The operations. Each raises ArgumentError or NotSupportedError for invalid arguments, before
  // anything is sent. An error of the group itself is raised here or by wait().
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts = {}) override;
  // Sparse (COO) tensors go to allreduce_sparse().
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts = {}) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts = {}) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts = {}) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts = {}) override;
  // The outputs may differ in size. The input has the size of this rank's output.
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
  // The inputs may differ in size. The output has the size of this rank's input.
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
  // Devices are ignored: the barrier orders the host threads of all ranks.
  WorkPtr barrier(const c10d::BarrierOptions& opts = {}) override;
  // A barrier that raises an error with the lowest missing rank, or with all of them, and then
  // fails the group. Blocks until it has ended.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool all_ranks = false) override;

  // Like the operations of similar name, with codecs of their own in place of the group's. They
  // also raise the errors of make_codec_map().
  WorkPtr allreduce_compressed(const at::Tensor& tensor, const c10d::AllreduceOptions& opts,
                               const CompressionSpec& coding);
  // Sums residuals for CompressState.state_dict(). Error messages name that use.
  WorkPtr allreduce_of_state(const at::Tensor& tensor);
  WorkPtr allgather_compressed(const at::Tensor& output, const at::Tensor& input,
                               const c10d::AllgatherOptions& opts, const CompressionSpec& coding);
  WorkPtr reduce_scatter_compressed(const at::Tensor& output, const at::Tensor& input,
                                    const c10d::ReduceScatterOptions& opts,
                                    const CompressionSpec& coding);
  // All-reduces contiguous tensors, at least one, as one op. `map` is a codec map for all of their
  // elements; null means no compression.
  WorkPtr allreduce_with_codec_map(const Tensors& pieces, const c10d::AllreduceOptions& opts,
                                   std::shared_ptr<const CodecMap> map);

  // Creates the group of the next generation, after members were lost. All survivors have to call
  // it, and this group has failed afterwards. Raises the errors of Communicator::shrink().
  struct Next {
    c10::intrusive_ptr<ProcessGroupRing> backend;
    ShrinkResult shrunk;
  };
  Next next_generation(std::chrono::milliseconds timeout);
  // Lets newcomers join from here on. Raises the errors of Communicator::admit().
  void admit(const std::string& job, const std::string& note, uint32_t most) {
    throw_if(active_.current()->communicator->admit(job, note, most));
  }

  // Treats the process of another rank as lost. Raises the errors of Communicator::give_up().
  void give_up(int rank, const std::string& why) {
    throw_if(active_.current()->communicator->give_up(rank, why));
  }

  // Makes this process a member of the group that accepts newcomers at `options.store`, under the
  // name `job`. Raises the errors of JoinClient.
  struct Joined {
    Next next;
    std::string name;  // name of the group in its first generation
    std::string note;  // given to admit()
  };
  static Joined join(std::shared_ptr<Context> context, CommunicatorOptions options, std::string job,
                     std::chrono::milliseconds timeout);

  // Raises an error if reconfigure() has not been called yet.
  std::shared_ptr<Communicator> communicator() const { return active_.current()->communicator; }

 private:
  ActiveGroupHolder active_;
};

}  // namespace ringdist
