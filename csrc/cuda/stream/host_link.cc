#include "cuda/stream/host_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ringdist::gpu {
namespace {

constexpr size_t kLength = sizeof(uint32_t);

HostOp move_bytes(int peer, bool sends, Buffer bytes, std::shared_ptr<void> keep_alive) {
  HostOp op;
  op.request.kind = Collective::kPointToPoint;
  op.request.dtype = DType::kUInt8;
  op.request.count = bytes.count();
  op.request.envelope = Envelope{peer, 0, sends, Envelope::TagSpace::kSchedule};
  (sends ? op.input : op.output) = std::move(bytes);
  op.keep_alive = std::move(keep_alive);
  return op;
}

void append(std::byte* from, size_t bytes, Buffer& to) {
  if (bytes != 0) to.append(from, static_cast<int64_t>(bytes));
}

// Of a message in memory of the host the lengths of what varies.
Buffer lengths_of(const DeviceBytes& message) {
  Buffer out(1);
  for (const VariablePart& one : message.varying) append(message.data + one.at, kLength, out);
  return out;
}

// All of it but the room that is not taken; the lengths are there.
Buffer used_of(const DeviceBytes& message) {
  Buffer out(1);
  size_t begin = 0;
  for (const VariablePart& one : message.varying) {
    uint32_t length = 0;
    std::memcpy(&length, message.data + one.at, kLength);
    append(message.data + begin, one.at + std::min(one.room, kLength + length) - begin, out);
    begin = one.at + one.room;
  }
  append(message.data + begin, message.size - begin, out);
  return out;
}

}  // namespace

Result<std::shared_ptr<StagedExchange>> HostPathState::exchange() const {
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

Result<StagedExchange*> HostLink::lengths() {
  if (!lengths_) {
    auto made = staging_.exchange();
    if (!made.ok()) return made.error();
    lengths_ = made.value();
    held_.push_back(lengths_);
  }
  return lengths_.get();
}

// Pinned memory and the host op that sends or receives it.
Result<std::byte*> HostLink::add(int peer, bool sends, const DeviceBytes& message) {
  const auto memory = staging_.pinned->take(message.size);
  if (!memory.ok()) return memory.error();
  held_.push_back(memory.value());
  const DeviceBytes here{memory.value().get(), message.size, message.varying};
  const auto made = [peer, sends, here, kept = memory.value()] {
    return move_bytes(peer, sends, used_of(here), kept);
  };
  if (here.varying.empty()) {
    exchange_->add(made());
    return here.data;
  }
  const auto before = lengths();
  if (!before.ok()) return before.error();
  before.value()->add(move_bytes(peer, sends, lengths_of(here), memory.value()));
  exchange_->add_made(made);
  return here.data;
}

Error HostLink::send(int peer, const DeviceBytes& message, Stream stream) {
  const auto memory = add(peer, /*sends=*/true, message);
  if (!memory.ok()) return memory.error();
  return staging_.cuda.copy(memory.value(), message.data, message.size, stream);
}

Error HostLink::receive(int peer, const DeviceBytes& message, Stream) {
  const auto memory = add(peer, /*sends=*/false, message);
  if (!memory.ok()) return memory.error();
  arrivals_.push_back({message.data, memory.value(), message.size});
  return {};
}

Error HostLink::visit(StagedExchange& exchange) const {
  if (Error error = exchange.start(staging_.cuda, stream_)) return error;
  return exchange.await(staging_.cuda, stream_);
}

Error HostLink::end() {
  const auto lengths = std::exchange(lengths_, nullptr);
  const auto exchange = std::exchange(exchange_, nullptr);
  if (lengths)
    if (Error error = visit(*lengths)) return error;
  if (Error error = visit(*exchange)) return error;
  for (const Arrival& one : std::exchange(arrivals_, {}))
    if (Error error = staging_.cuda.copy(one.to, one.from, one.bytes, stream_)) return error;
  return {};
}

}  // namespace ringdist::gpu
