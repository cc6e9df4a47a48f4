#include "cuda/stream/host_way.h"

#include <cstring>
#include <utility>

namespace ringdist::gpu {
namespace {

// Whether a rank's output is also what it gives.
bool gives_output(const Request& request, int rank) {
  switch (request.kind) {
    case Collective::kAllreduce:
    case Collective::kReduce:
      return true;
    case Collective::kBroadcast:
      return rank == request.root;
    default:
      return false;
  }
}

bool gets_output(const Request& request, int rank) {
  if (request.kind == Collective::kReduce) return rank == request.root;
  return request.kind != Collective::kBroadcast || rank != request.root;
}

// Sends and receives of callers and of exchanges do not meet: those have tag 0.
HostOp host_op_of(const DeviceOp& op) {
  HostOp out;
  out.request = op.request;
  if (out.request.endpoint) ++out.request.endpoint->tag;
  out.input = Buffer(op.input.element_size());
  out.output = Buffer(op.output.element_size());
  return out;
}

}  // namespace

HostWay::HostWay(CudaApi& cuda, RunnerGroup& group)
    : staging_{cuda, std::make_shared<GroupAccess>(group), std::make_shared<PinnedPool>(cuda),
               std::make_shared<FirstError>()},
      rank_(group.rank()),
      schedules_(cuda, group.rank(), group.size()) {}

Error HostWay::prepare(const DevicePlace&, const Request& request, TimePoint) {
  if (request.blocks)
    if (Error error = schedules_.check(request)) return error;
  if (malformed_) return {};
  const auto memory = staging_.pinned->take(sizeof(int));
  if (!memory.ok()) return memory.error();
  std::memset(memory.value().get(), 0, sizeof(int));
  malformed_ = memory.value();
  return {};
}

Error HostWay::enqueue(const DeviceOp& op, Stream stream, Held& held) {
  if (!op.request.blocks) return enqueue_plain(op, stream, held);
  held.push_back(malformed_);
  HostLink link(staging_, stream, held);
  return schedules_.enqueue(op, stream, link, reinterpret_cast<int*>(malformed_.get()));
}

Error HostWay::enqueue_plain(const DeviceOp& op, Stream stream, Held& held) {
  HostOp host = host_op_of(op);
  const auto input = pinned_for(op.input, host.input, held);
  if (!input.ok()) return input.error();
  const auto output = pinned_for(op.output, host.output, held);
  if (!output.ok()) return output.error();
  if (Error error = bring(op.input, stream, input.value())) return error;
  if (gives_output(op.request, rank_))
    if (Error error = bring(op.output, stream, output.value())) return error;
  host.keep_alive = std::make_shared<Held>(held);
  const auto exchange = staging_.exchange();
  if (!exchange.ok()) return exchange.error();
  held.push_back(exchange.value());
  exchange.value()->add(std::move(host));
  if (Error error = exchange.value()->enqueue(staging_.cuda, stream)) return error;
  if (!gets_output(op.request, rank_)) return {};
  return take(op.output, output.value(), stream);
}

// Null for no elements.
Result<std::byte*> HostWay::pinned_for(const Buffer& values, Buffer& out, Held& held) {
  if (values.count() == 0) return static_cast<std::byte*>(nullptr);
  const auto memory =
      staging_.pinned->take(static_cast<size_t>(values.count()) * values.element_size());
  if (!memory.ok()) return memory.error();
  held.push_back(memory.value());
  out.append(memory.value().get(), values.count());
  return memory.value().get();
}

Error HostWay::bring(const Buffer& values, Stream stream, std::byte* to) {
  Error error;
  values.for_each(0, values.count(), [&](Bytes piece) {
    if (!error) error = staging_.cuda.copy(to, piece.data(), piece.size(), stream);
    to += piece.size();
  });
  return error;
}

Error HostWay::take(const Buffer& values, const std::byte* from, Stream stream) {
  Error error;
  values.for_each(0, values.count(), [&](Bytes piece) {
    if (!error) error = staging_.cuda.copy(piece.data(), from, piece.size(), stream);
    from += piece.size();
  });
  return error;
}

Error HostWay::check() {
  if (Error error = staging_.failed->get()) return error;
  if (!malformed_ || *reinterpret_cast<const volatile int*>(malformed_.get()) == 0) return {};
  return Error(ErrorKind::kProtocol, "ringdist: bytes from another rank that no encoder writes");
}

}  // namespace ringdist::gpu
