#include "cuda/stream/host_way.h"

#include <utility>

#include "cuda/stream/copies.h"

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
  return request.blocks ? schedules_.prepare(request) : Error();
}

Error HostWay::enqueue(const DeviceOp& op, Stream stream, Held& held) {
  if (!op.request.blocks) return enqueue_plain(op, stream, held);
  HostLink link(staging_, stream, held);
  return schedules_.enqueue(op, stream, link, held);
}

Error HostWay::enqueue_plain(const DeviceOp& op, Stream stream, Held& held) {
  HostOp host = host_op_of(op);
  const auto input = pinned_for(op.input, host.input, held);
  if (!input.ok()) return input.error();
  const auto output = pinned_for(op.output, host.output, held);
  if (!output.ok()) return output.error();
  CudaApi& cuda = staging_.cuda;
  if (Error error = copy_out(cuda, op.input, 0, op.input.count(), input.value(), stream))
    return error;
  if (gives_output(op.request, rank_))
    if (Error error = copy_out(cuda, op.output, 0, op.output.count(), output.value(), stream))
      return error;
  host.keep_alive = std::make_shared<Held>(held);
  const auto exchange = staging_.exchange();
  if (!exchange.ok()) return exchange.error();
  held.push_back(exchange.value());
  exchange.value()->add(std::move(host));
  if (Error error = exchange.value()->enqueue(cuda, stream)) return error;
  if (!gets_output(op.request, rank_)) return {};
  return copy_in(cuda, op.output, 0, op.output.count(), output.value(), stream);
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

Error HostWay::check() {
  const Error error = staging_.failed->get();
  return error ? error : schedules_.check();
}

}  // namespace ringdist::gpu
