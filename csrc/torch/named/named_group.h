// NamedGroup: a group with operations that are called by name. Each rank may call them in an order
// of its own, from any thread (negotiation/negotiation.h). The semantics are Horovod's, as of
// horovod.torch 0.28: https://horovod.readthedocs.io.
//
// Each operation returns at once. It throws for invalid arguments before anything is sent, and then
// its name is free. One open call at a time may have a name. Results are in new tensors, or in
// `outputs`. The tensors of a call are on the CPU or on one device, alike on all ranks. Any thread,
// without the GIL.
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

// Checks calls, turns them into requests and passes these to a Negotiation. Results are in place
// once NamedWork::poll() or wait() has reported the end.
class NamedGroup {
 public:
  // `group` must be used for these operations only; all ranks construct this object. `devices` is
  // the type of devices for which the group has a runner.
  NamedGroup(std::shared_ptr<Communicator> group, NegotiationOptions options,
             c10::DeviceType devices = c10::DeviceType::CUDA);

  using Handle = std::shared_ptr<NamedWork>;

  // Parameters of a reduction. Inputs are multiplied by `prescale`, results by `postscale`.
  struct ReduceOptions {
    ReduceOp op = ReduceOp::kSum;
    double prescale = 1;
    double postscale = 1;
    bool will_wait = false;  // the caller waits next, so no other thread needs to be woken
  };

  // Reduces a list of at least one tensor, as one operation. Input i goes to output i, which may be
  // the same tensor. Runs outside autograd.
  Handle allreduce(const std::string& name, const Tensors& inputs, const Tensors& outputs,
                   const ReduceOptions& how);
  // Gathers a list of tensors, as one operation. Each output has the rows (dimension 0) of all
  // ranks, which may have different numbers of rows. `variant` describes what else ranks must have
  // alike.
  Handle allgather(const std::string& name, const Tensors& inputs, const std::string& variant = "");
  // Sends the root's input to all outputs. `root` is a rank of this group. Values of other inputs
  // are ignored.
  Handle broadcast(const std::string& name, const at::Tensor& input, const at::Tensor& output,
                   int root);
  // Sends `splits[r]` rows of the input to rank r; further rows are not sent. Outputs: the received
  // rows, and an int64 tensor with the number of rows of each rank.
  Handle alltoall(const std::string& name, const at::Tensor& input, std::vector<int64_t> splits);
  // Reduces a list, as one operation, and scatters rows. The first (rows modulo size) ranks get one
  // row more.
  Handle reducescatter(const std::string& name, const Tensors& inputs, const ReduceOptions& how);
  // Ends when all ranks have called it. Does not wait for other operations.
  Handle barrier(const std::string& name);

  // Waits until all ranks have joined; this rank calls nothing meanwhile. Returns the last rank to
  // join. Joined contributions of this rank are in memory of `device` if the other ranks' tensors
  // are on devices.
  int join(std::optional<c10::DeviceIndex> device = std::nullopt);

  // Calls Negotiation::tune(). Raises ArgumentError for fusion_bytes below 0 and batches_in_flight
  // below 1.
  void tune(int64_t fusion_bytes, int batches_in_flight);
  // These call Negotiation. stop_timeline() waits up to `limit`; returns false if the file is not
  // complete.
  void start_timeline(const std::string& path, bool marks_cycles);
  bool stop_timeline(std::optional<Milliseconds> limit);

  // Waits for the operations that have been called, then leaves the group.
  void close() { negotiation_->close(); }

 private:
  using Side = std::optional<c10::Stream>;

  // Starts an operation of several Calls with sizes that this rank has. `outputs` are multiplied by
  // `factor` after the end. `side` is the stream of a device, if the tensors are on one.
  Handle start_all(std::string_view op, const std::string& name, const CallContent& content,
                   const Side& side, std::vector<Call> calls, Tensors outputs, double factor = 1,
                   bool will_wait = false);
  // Passes a call to the Negotiation and returns its Work.
  Handle start(NamedCall call, const Side& side, std::shared_ptr<Tensors> outputs,
               NamedWork::OnSuccess after, bool will_wait = false);

  const RankAndSize place_;
  const std::shared_ptr<Negotiation> negotiation_;
  NamedDevice device_;
};

}  // namespace ringdist
