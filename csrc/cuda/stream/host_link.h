// Moves bytes by way of the host: into pinned memory, by sends and receives of the group's host
// ops, and out of pinned memory. Of what varies in a message its length goes first, and then so
// many bytes. Of one op.
#pragma once

#include <memory>
#include <vector>

#include "cuda/stream/device_link.h"
#include "cuda/stream/device_path.h"
#include "cuda/stream/pinned_pool.h"
#include "cuda/stream/staged_exchange.h"

namespace ringdist::gpu {

// What is common to a way's ops.
struct HostPathState {
  CudaApi& cuda;
  int rank;
  int size;
  std::shared_ptr<RevocableGroup> group;
  std::shared_ptr<PinnedPool> pinned;
  std::shared_ptr<FirstError> failed;

  Result<std::shared_ptr<StagedExchange>> exchange() const;
};

class HostLink final : public DeviceLink {
 public:
  HostLink(const HostPathState& staging, Stream stream, KeptAlive& held)
      : staging_(staging), stream_(stream), held_(held) {}

  Error begin() override;
  Error send(int peer, const DeviceBytes& message, Stream stream) override;
  Error receive(int peer, const DeviceBytes& message, Stream stream) override;
  Error end() override;

 private:
  struct Arrival {
    void* to;
    const std::byte* from;
    size_t bytes;
  };
  Result<std::byte*> add(int peer, bool sends, const DeviceBytes& message);
  Error visit(StagedExchange& exchange) const;

  const HostPathState& staging_;
  const Stream stream_;
  KeptAlive& held_;
  Result<StagedExchange*> lengths();

  std::shared_ptr<StagedExchange> lengths_;  // before the messages, if some vary
  std::shared_ptr<StagedExchange> exchange_;
  std::vector<Arrival> arrivals_;
};

}  // namespace ringdist::gpu
