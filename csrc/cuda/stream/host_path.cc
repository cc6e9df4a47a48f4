#include "cuda/stream/host_path.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "cuda/stream/copies.h"
#include "cuda/stream/host_mailboxes.h"
#include "cuda/stream/path_rules.h"
#include "cuda/stream/staged_exchange.h"

namespace ringdist::gpu {
namespace {

// Bytes of the length in front of a variable part.
constexpr size_t kLength = sizeof(uint32_t);

// Returns a host op that sends or receives bytes.
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

// Appends memory to a buffer, unless it is empty.
void append(std::byte* from, size_t bytes, Buffer& to) {
  if (bytes != 0) to.append(from, static_cast<int64_t>(bytes));
}

// Returns the lengths of the variable parts of a message in host memory.
Buffer lengths_of(const DeviceBytes& message) {
  Buffer out(1);
  for (const VariablePart& one : message.varying) append(message.data + one.at, kLength, out);
  return out;
}

// Returns the message without unused room. Its lengths must be valid.
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

// Returns true if the rank's output buffer is also its input.
bool gives_output(const OpSpec& request, int rank) {
  const CollectiveTraits& traits = traits_of(request.kind);
  return traits.in_place && (traits.reduces || rank == request.root);
}

// Returns true if the op writes the rank's output buffer.
bool gets_output(const OpSpec& request, int rank) {
  const CollectiveTraits& traits = traits_of(request.kind);
  if (!traits.in_place || !traits.has_root) return true;
  return traits.reduces == (rank == request.root);
}

// Returns a host op like `op`, with empty buffers of its element sizes.
HostOp host_op_of(const DeviceOp& op) {
  HostOp out;
  out.request = op.request;
  if (out.request.envelope) out.request.envelope->origin = Envelope::TagSpace::kDeviceCaller;
  out.input = Buffer(op.input.element_size());
  out.output = Buffer(op.output.element_size());
  return out;
}

}  // namespace

PinnedPool::~PinnedPool() {
  for (const auto& [bytes, blocks] : free_)
    for (std::byte* const block : blocks) cuda_.free_pinned(block);
}

Result<std::shared_ptr<std::byte>> PinnedPool::take(size_t bytes) {
  constexpr size_t kLeast = 4096;
  bytes = std::bit_ceil(std::max(bytes, kLeast));
  std::byte* memory = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (const auto it = free_.find(bytes); it != free_.end()) {
      memory = it->second.back();
      it->second.pop_back();
      kept_ -= bytes;
      if (it->second.empty()) free_.erase(it);
    }
  }
  if (memory == nullptr) {
    const Result<void*> made = cuda_.allocate_pinned(bytes);
    if (!made.ok()) return made.error();
    memory = static_cast<std::byte*>(made.value());
  }
  return std::shared_ptr<std::byte>(memory, [self = shared_from_this(), bytes](std::byte* block) {
    self->put_back(block, bytes);
  });
}

// If the pool is too large, frees the largest blocks, because small ones are in constant use.
void PinnedPool::put_back(std::byte* memory, size_t bytes) {
  std::vector<std::byte*> gone;
  {
    std::lock_guard lock(mutex_);
    free_[bytes].push_back(memory);
    kept_ += bytes;
    while (kept_ > kMostKept) {
      const auto largest = std::prev(free_.end());
      gone.push_back(largest->second.back());
      largest->second.pop_back();
      kept_ -= largest->first;
      if (largest->second.empty()) free_.erase(largest);
    }
  }
  for (std::byte* const one : gone) cuda_.free_pinned(one);
}

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

// Takes pinned memory and adds the host op for it. A message with variable parts has another host
// op before it, for the lengths.
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
  // The lengths arrive first. used_of() reads them when the stream reaches the second exchange.
  if (lengths)
    if (Error error = visit(*lengths)) return error;
  if (Error error = visit(*exchange)) return error;
  for (const Arrival& one : std::exchange(arrivals_, {}))
    if (Error error = staging_.cuda.copy(one.to, one.from, one.bytes, stream_)) return error;
  return {};
}

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

// If a group has several devices, the first one decides. A failure is ignored, because this affects
// only speed.
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

// Host ops end with the group, and so do waits for them. Waits for mailboxes need an abort of their
// own.
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
  // The host op holds the memory itself, because a send may end after the event of its stream.
  host.keep_alive = std::make_shared<KeptAlive>(held);
  const auto exchange = staging_.exchange();
  if (!exchange.ok()) return exchange.error();
  held.push_back(exchange.value());
  exchange.value()->add(std::move(host));
  if (Error error = exchange.value()->start(cuda, stream)) return error;
  // A send is complete when its values are in pinned memory. If the stream waited for the receiver,
  // it could block other streams that share a queue of the device.
  if (op.request.envelope && op.request.envelope->sends) return {};
  if (Error error = exchange.value()->await(cuda, stream)) return error;
  if (!gets_output(op.request, staging_.rank)) return {};
  return copy_in(cuda, op.output, 0, op.output.count(), output.value(), stream);
}

// Returns null if there are no elements.
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
  // After an abort, waits end early and events are reached, although the data is invalid.
  if (const auto all = mailboxes(); all && all->ended()) {
    all->reassert_abort();
    return Error(ErrorKind::kAborted,
                 "ringdist: a rank ended the group while bytes were under way");
  }
  const Error error = staging_.failed->get();
  return error ? error : schedules_.check();
}

}  // namespace ringdist::gpu
