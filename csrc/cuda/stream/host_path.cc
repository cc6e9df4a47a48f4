#include "cuda/stream/host_path.h"

#include <string>
#include <utility>

#include "cuda/stream/call_comparison.h"
#include "cuda/stream/copies.h"
#include "cuda/stream/mailbox_link.h"
#include "cuda/stream/path_rules.h"

namespace ringdist::gpu {
namespace {

// Whether a rank's output is also what it gives.
bool gives_output(const OpSpec& request, int rank) {
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

bool gets_output(const OpSpec& request, int rank) {
  if (request.kind == Collective::kReduce) return rank == request.root;
  return request.kind != Collective::kBroadcast || rank != request.root;
}

HostOp host_op_of(const DeviceOp& op) {
  HostOp out;
  out.request = op.request;
  if (out.request.envelope) out.request.envelope->origin = Envelope::TagSpace::kDeviceCaller;
  out.input = Buffer(op.input.element_size());
  out.output = Buffer(op.output.element_size());
  return out;
}

}  // namespace

Error HostPath::captured(const OpSpec& request) const {
  return Error(ErrorKind::kNotSupported,
               "ringdist: " + std::string(collective_name(request.kind)) +
                   " of this group's tensors on devices goes by way of the host, and so cannot be "
                   "captured into a CUDA graph");
}

HostPath::HostPath(CudaApi& cuda, RunnerDelegate& group)
    : staging_{cuda,
               group.rank(),
               group.size(),
               std::make_shared<RevocableGroup>(group),
               std::make_shared<PinnedPool>(cuda),
               std::make_shared<FirstError>()},
      group_(group),
      schedules_(cuda, group.rank(), group.size()) {}

std::shared_ptr<HostMailboxes> HostPath::mailboxes() const {
  std::lock_guard lock(mutex_);
  return mailboxes_;
}

Error HostPath::make_mailboxes(TimePoint deadline) {
  if (std::exchange(asked_, true)) return {};
  auto made = HostMailboxes::make(staging_.cuda, group_, deadline);
  if (!made.ok()) return made.error();
  std::lock_guard lock(mutex_);
  mailboxes_ = std::move(made.value());
  if (mailboxes_ && aborted_) mailboxes_->abort();
  return {};
}

// Of several devices of a group the first has its way. It is for speed only: no matter if it fails.
void HostPath::set_affinity_near(int device) {
  if (std::exchange(near_, true)) return;
  if (const auto address = staging_.cuda.address(device); address.ok())
    group_.set_affinity_near(address.value());
}

Error HostPath::prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) {
  set_affinity_near(place.device);
  if (suits_mailboxes(request, staging_.size))
    if (Error error = make_mailboxes(deadline)) return error;
  return request.codec_map ? schedules_.prepare(request) : Error();
}

Error HostPath::enqueue(const DeviceOp& op, Stream stream, KeptAlive& held) {
  if (suits_mailboxes(op.request, staging_.size) && mailboxes())
    return enqueue_by_mailboxes(op, stream, held);
  if (!op.request.codec_map) return enqueue_plain(op, stream, held);
  HostLink link(staging_, stream, held);
  return schedules_.enqueue(op, stream, link, held);
}

// The host's ops end with the group, and with them what waits for them; what waits for boxes does
// not.
void HostPath::abort() {
  std::lock_guard lock(mutex_);
  aborted_ = true;
  if (mailboxes_) mailboxes_->abort();
}

Error HostPath::enqueue_by_mailboxes(const DeviceOp& op, Stream stream, KeptAlive& held) {
  const auto all = mailboxes();
  held.push_back(all);
  const auto comparison = staging_.exchange();
  if (!comparison.ok()) return comparison.error();
  held.push_back(comparison.value());
  add_comparison(op, staging_.rank, staging_.size, *comparison.value());
  if (Error error = comparison.value()->start(staging_.cuda, stream)) return error;
  MailboxLink link(*all, stream);
  if (Error error = schedules_.enqueue(op, stream, link, held)) return error;
  return comparison.value()->await(staging_.cuda, stream);
}

Error HostPath::enqueue_plain(const DeviceOp& op, Stream stream, KeptAlive& held) {
  HostOp host = host_op_of(op);
  const auto input = pinned_for(op.input, host.input, held);
  if (!input.ok()) return input.error();
  const auto output = pinned_for(op.output, host.output, held);
  if (!output.ok()) return output.error();
  CudaApi& cuda = staging_.cuda;
  if (Error error = copy_out(cuda, op.input, 0, op.input.count(), input.value(), stream))
    return error;
  if (gives_output(op.request, staging_.rank))
    if (Error error = copy_out(cuda, op.output, 0, op.output.count(), output.value(), stream))
      return error;
  host.keep_alive = std::make_shared<KeptAlive>(held);
  const auto exchange = staging_.exchange();
  if (!exchange.ok()) return exchange.error();
  held.push_back(exchange.value());
  exchange.value()->add(std::move(host));
  if (Error error = exchange.value()->start(cuda, stream)) return error;
  // A send is done when its values are there: one that waited for its receiver would keep from the
  // device what other streams have for it, where they share a queue.
  if (op.request.envelope && op.request.envelope->sends) return {};
  if (Error error = exchange.value()->await(cuda, stream)) return error;
  if (!gets_output(op.request, staging_.rank)) return {};
  return copy_in(cuda, op.output, 0, op.output.count(), output.value(), stream);
}

// Null for no elements.
Result<std::byte*> HostPath::pinned_for(const Buffer& values, Buffer& out, KeptAlive& held) {
  if (values.count() == 0) return static_cast<std::byte*>(nullptr);
  const auto memory =
      staging_.pinned->take(static_cast<size_t>(values.count()) * values.element_size());
  if (!memory.ok()) return memory.error();
  held.push_back(memory.value());
  out.append(memory.value().get(), values.count());
  return memory.value().get();
}

Error HostPath::check() {
  if (const auto all = mailboxes(); all && all->ended()) {
    all->reassert_abort();
    return Error(ErrorKind::kAborted,
                 "ringdist: a rank ended the group while bytes were under way");
  }
  const Error error = staging_.failed->get();
  return error ? error : schedules_.check();
}

}  // namespace ringdist::gpu
