// Path through NCCL. Uses NCCL's collectives if they give the results that the product promises.
// All other ops are schedules over NCCL's sends and receives: compressed ops, other reductions, and
// parts of different sizes.
//
// The choice depends only on the request, not on the layout of tensors, so all ranks choose alike.
#pragma once

#include <functional>
#include <memory>

#include "cuda/nccl/nccl_comms.h"
#include "cuda/stream/device_path.h"
#include "cuda/stream/stream_schedule.h"

namespace ringdist::gpu {

// See DevicePath for the contracts. Tags other than 0 are not supported.
class NcclPath final : public DevicePath {
 public:
  // All arguments must outlive the path. `split` is that of NcclComms.
  NcclPath(CudaApi& cuda, NcclApi& nccl, RunnerDelegate& group,
           std::shared_ptr<SplitComm> split = nullptr);

  Error prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) override;
  Result<MakeDevicePath> split(const std::vector<int>& ranks, TimePoint deadline) override;
  Error enqueue(const DeviceOp& op, Stream stream, KeptAlive& held) override;
  Error check() override;
  Error captured(const OpSpec& request) const override;
  void abort() override { comms_.abort(); }

 private:
  // NCCL's representation of a request. Ops that only move data use bytes.
  struct Numbers {
    NcclType type;
    NcclReduce op;
    size_t each;  // numbers in an element
  };

  Numbers numbers_of(const OpSpec& request) const;
  // Returns the communicator of an op, or null after an abort.
  NcclComm find_comm(const DeviceOp& op) const;
  // Runs `calls` as one group of NCCL calls.
  Error group_of_calls(const DeviceOp& op, NcclComm comm, const std::function<NcclResult()>& calls);
  // Enqueues an allreduce, broadcast or reduce.
  Error enqueue_native(const DeviceOp& op, NcclComm comm, Stream stream);
  // Enqueues an allgather or reduce-scatter.
  Error enqueue_parts(const DeviceOp& op, NcclComm comm, Stream stream);
  // Enqueues a send or receive.
  Error enqueue_message(const DeviceOp& op, NcclComm comm, Stream stream);

  CudaApi& cuda_;
  NcclApi& nccl_;
  const int rank_;
  const int size_;
  NcclComms comms_;
  StreamSchedules schedules_;
};

}  // namespace ringdist::gpu
