// A group whose operations are called by name: by each rank in an order of its own, from any
// thread (negotiation/negotiation.h). Horovod's semantics: https://horovod.readthedocs.io, the API
// of horovod.torch 0.28.
//
// Each operation returns at once, and throws for arguments that it does not take before anything is
// sent: then its name is free. Names: of one open call at a time. Results are in new tensors, or in
// `outputs`. Tensors are the CPU's or those of one device: each call's alike, and alike on all
// ranks. Any thread, without the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "negotiation/call_content.h"
#include "torch/named/named_device.h"
#include "torch/named/named_work.h"

namespace ringdist {

class NamedGroup {
 public:
  // Of a group that is for these operations alone; all ranks alike. `devices`: those that it has a
  // runner for.
  NamedGroup(std::shared_ptr<Communicator> group, NegotiationOptions options,
             c10::DeviceType devices = c10::DeviceType::CUDA);

  using Handle = std::shared_ptr<NamedWork>;

  struct ReduceOptions {
    ReduceOp op = ReduceOp::kSum;
    double prescale = 1;
    double postscale = 1;
    bool will_wait = false;  // the caller does so next: no other thread need be woken
  };

  // Of a list, as one operation; at least one tensor. Input i goes to output i, which may be the
  // same. Outside autograd.
  Handle allreduce(const std::string& name, const Tensors& inputs, const Tensors& outputs,
                   const ReduceOptions& how);
  // Of a list, as one operation: rows, of dimension 0, of all ranks, which may have different
  // numbers of them. `variant`: what else they must have alike, in words.
  Handle allgather(const std::string& name, const Tensors& inputs, const std::string& variant = "");
  // `root`: rank of this group. On others the input's values do not count.
  Handle broadcast(const std::string& name, const at::Tensor& input, const at::Tensor& output,
                   int root);
  // `splits`: rows for each rank; the input's rows after them are not sent. The outputs: what was
  // received, and (int64) how many rows of each rank.
  Handle alltoall(const std::string& name, const at::Tensor& input, std::vector<int64_t> splits);
  // Of a list, as one operation. The first (rows modulo size) ranks get one row more.
  Handle reducescatter(const std::string& name, const Tensors& inputs, const ReduceOptions& how);
  // Ends when all ranks have called it; waits for no other operation.
  Handle barrier(const std::string& name);

  // This rank calls nothing until all have joined; the last one to do so. Waits for it. `device`:
  // whose memory stands for this rank's where others call what is on theirs.
  int join(std::optional<c10::DeviceIndex> device = std::nullopt);

  // As of Negotiation. Raises ValueError for fusion_bytes below 0, batches_in_flight below 1.
  void tune(int64_t fusion_bytes, int batches_in_flight);
  // As of Negotiation. stop_timeline() waits, but not longer than `limit`; false: not all is there.
  void start_timeline(const std::string& path, bool marks_cycles);
  bool stop_timeline(std::optional<Milliseconds> limit);

  // Waits for what has been called, then leaves.
  void close() { negotiation_->close(); }

 private:
  using Side = std::optional<c10::Stream>;

  Handle start_all(std::string_view op, const std::string& name, const CallContent& content,
                   const Side& side, std::vector<Call> calls, Tensors outputs, double factor = 1,
                   bool will_wait = false);
  Handle start(NamedCall call, const Side& side, std::shared_ptr<Tensors> outputs,
               NamedWork::OnSuccess after, bool will_wait = false);

  const RankAndSize place_;
  const std::shared_ptr<Negotiation> negotiation_;
  NamedDevice device_;
};

}  // namespace ringdist
