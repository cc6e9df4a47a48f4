// Moves bytes by NCCL's sends and receives: those of an exchange are a group of its calls.
#pragma once

#include "cuda/nccl/nccl_comms.h"
#include "cuda/stream/device_link.h"
#include "engine/device_runner.h"

namespace ringdist::gpu {

class NcclLink final : public DeviceLink {
 public:
  // `comm` of all ranks; both it and the op outlive the link.
  NcclLink(NcclApi& nccl, const NcclComms& comms, NcclComm comm, const DeviceOp& op)
      : nccl_(nccl), comms_(comms), comm_(comm), op_(op) {}

  Error begin() override { return within(nccl_.group_start()); }
  Error send(int peer, const DeviceBytes& message, Stream stream) override {
    return within(nccl_.send(message.data, message.size, NcclType::kUint8, peer, comm_, stream));
  }
  Error receive(int peer, const DeviceBytes& message, Stream stream) override {
    return within(nccl_.recv(message.data, message.size, NcclType::kUint8, peer, comm_, stream));
  }
  Error end() override { return error_of(nccl_.group_end()); }

 private:
  Error within(NcclResult result) const {
    return NcclComms::goes_on(result) ? Error() : error_of(result);
  }
  Error error_of(NcclResult result) const {
    return comms_.error_of(result, comm_, op_.text, op_.deadline);
  }

  NcclApi& nccl_;
  const NcclComms& comms_;
  const NcclComm comm_;
  const DeviceOp& op_;
};

}  // namespace ringdist::gpu
