#include "cuda/stream/host_link.h"

#include <utility>

namespace ringdist::gpu {

Result<std::shared_ptr<StagedExchange>> Staging::exchange() const {
  const auto flag = pinned->take(sizeof(uint32_t));
  if (!flag.ok()) return flag.error();
  return std::make_shared<StagedExchange>(group, failed, flag.value());
}

Error HostLink::begin() {
  auto made = staging_.exchange();
  if (!made.ok()) return made.error();
  exchange_ = made.value();
  held_.push_back(exchange_);
  return {};
}

// Pinned memory and the host op that sends or receives it.
Result<std::byte*> HostLink::add(int peer, bool sends, size_t bytes) {
  const auto memory = staging_.pinned->take(bytes);
  if (!memory.ok()) return memory.error();
  held_.push_back(memory.value());
  const auto count = static_cast<int64_t>(bytes);
  HostOp op;
  op.request.kind = Collective::kPointToPoint;
  op.request.dtype = DType::kUInt8;
  op.request.count = count;
  op.request.endpoint = Endpoint{peer, 0, sends, Endpoint::Origin::kSchedule};
  (sends ? op.input : op.output).append(memory.value().get(), count);
  op.keep_alive = memory.value();
  exchange_->add(std::move(op));
  return memory.value().get();
}

Error HostLink::send(int peer, const void* data, size_t bytes, Stream stream) {
  const auto memory = add(peer, /*sends=*/true, bytes);
  if (!memory.ok()) return memory.error();
  return staging_.cuda.copy(memory.value(), data, bytes, stream);
}

Error HostLink::receive(int peer, void* data, size_t bytes, Stream) {
  const auto memory = add(peer, /*sends=*/false, bytes);
  if (!memory.ok()) return memory.error();
  arrivals_.push_back({data, memory.value(), bytes});
  return {};
}

Error HostLink::end() {
  const auto exchange = std::exchange(exchange_, nullptr);
  if (Error error = exchange->start(staging_.cuda, stream_)) return error;
  if (Error error = exchange->await(staging_.cuda, stream_)) return error;
  for (const Arrival& one : std::exchange(arrivals_, {}))
    if (Error error = staging_.cuda.copy(one.to, one.from, one.bytes, stream_)) return error;
  return {};
}

}  // namespace ringdist::gpu
