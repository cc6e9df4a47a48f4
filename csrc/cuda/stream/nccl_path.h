// By NCCL: its own collectives where it has them, and schedules over its sends and receives for the
// rest - compressed ops, reductions that it does not have, parts of different sizes. Ranks choose
// alike: by what they ask for, not by where their tensors lie.
#pragma once

#include <functional>
#include <memory>

#include "cuda/nccl/nccl_comms.h"
#include "cuda/stream/device_path.h"
#include "cuda/stream/stream_schedule.h"

namespace ringdist::gpu {

class NcclPath final : public DevicePath {
 public:
  // All outlive it; `split` as of NcclComms.
  NcclPath(CudaApi& cuda, NcclApi& nccl, RunnerDelegate& group,
           std::shared_ptr<SplitComm> split = nullptr);

  Error prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) override;
  Result<MakeDevicePath> split(const std::vector<int>& ranks, TimePoint deadline) override;
  Error enqueue(const DeviceOp& op, Stream stream, KeptAlive& held) override;
  Error check() override;
  Error captured(const OpSpec& request) const override;
  void abort() override { comms_.abort(); }

 private:
  // How NCCL counts and reduces what a request is of: what only moves goes as bytes.
  struct Numbers {
    NcclType type;
    NcclReduce op;
    size_t each;  // of an element
  };

  Numbers numbers_of(const OpSpec& request) const;
  NcclComm find_comm(const DeviceOp& op) const;
  Error group_of_calls(const DeviceOp& op, NcclComm comm, const std::function<NcclResult()>& calls);
  Error enqueue_native(const DeviceOp& op, NcclComm comm, Stream stream);
  Error enqueue_parts(const DeviceOp& op, NcclComm comm, Stream stream);
  Error enqueue_message(const DeviceOp& op, NcclComm comm, Stream stream);

  CudaApi& cuda_;
  NcclApi& nccl_;
  const int rank_;
  const int size_;
  NcclComms comms_;
  StreamSchedules schedules_;
};

}  // namespace ringdist::gpu
