#include "cuda/stream/nccl_path.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "cuda/api/cuda_api.h"
#include "cuda/nccl/nccl_comms.h"
#include "cuda/nccl/nccl_reduction.h"
#include "cuda/stream/device_link.h"
#include "cuda/stream/path_rules.h"
#include "engine/device/device_runner.h"

namespace ringdist::gpu {

// DeviceLink over NCCL's sends and receives. Those of one exchange form a group of NCCL calls.
class NcclLink final : public DeviceLink {
 public:
  // `comm` has all ranks. It and `op` must outlive the link.
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
  // Inside a group of calls, a call that has only begun is no error.
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

NcclPath::NcclPath(CudaApi& cuda, NcclApi& nccl, RunnerDelegate& group,
                   std::shared_ptr<SplitComm> split)
    : cuda_(cuda),
      nccl_(nccl),
      rank_(group.rank()),
      size_(group.size()),
      comms_(nccl, group, std::move(split)),
      schedules_(cuda, group.rank(), group.size()) {}

Error NcclPath::prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) {
  if (const auto& envelope = request.envelope) {
    if (envelope->tag != 0)
      return Error(ErrorKind::kNotSupported,
                   "ringdist: tag " + std::to_string(envelope->tag) +
                       ": sends and receives of tensors on devices have none by NCCL; use tag 0, "
                       "or RINGDIST_DEVICE_PATH=host");
    return comms_.make(place.device, envelope->peer, deadline);
  }
  if (request.codec_map || !nccl_reduces(request, nccl_.has_fp8()))
    if (Error error = schedules_.prepare(request)) return error;
  return comms_.make(place.device, kNoPeer, deadline);
}

Error NcclPath::captured(const OpSpec& request) const {
  if (!request.codec_map) return {};
  return Error(ErrorKind::kNotSupported,
               "ringdist: a compressed " + std::string(collective_name(request.kind)) +
                   " cannot be captured into a CUDA graph: its random numbers differ from call to "
                   "call, and a graph would repeat those of one");
}

Result<MakeDevicePath> NcclPath::split(const std::vector<int>& ranks, TimePoint deadline) {
  const auto device = comms_.first_device();
  if (!device) return MakeDevicePath();
  const ScopedDevice current(cuda_, *device);
  if (current.error()) return current.error();
  auto comm = comms_.split(ranks, deadline);
  if (!comm.ok()) return comm.error();
  if (!comm.value()) return MakeDevicePath();
  return MakeDevicePath([&cuda = cuda_, &nccl = nccl_, comm = comm.value()](RunnerDelegate& group) {
    return std::make_shared<NcclPath>(cuda, nccl, group, comm);
  });
}

NcclPath::Numbers NcclPath::numbers_of(const OpSpec& request) const {
  if (!reduces(request.kind))
    return {NcclType::kUint8, NcclReduce::kSum, dtype_size(request.dtype)};
  const auto how = nccl_reduction(request.dtype, request.reduce_op, nccl_.has_fp8());
  return {how->type, how->op, static_cast<size_t>(how->numbers)};
}

NcclComm NcclPath::find_comm(const DeviceOp& op) const {
  using Use = NcclComms::Use;
  const auto& envelope = op.request.envelope;
  if (!envelope) return comms_.find(op.device_stream.device, kNoPeer, Use::kCollectives);
  return comms_.find(op.device_stream.device, envelope->peer,
                     envelope->sends ? Use::kSends : Use::kReceives);
}

Error NcclPath::enqueue(const DeviceOp& op, Stream stream, KeptAlive& held) {
  const OpSpec& request = op.request;
  // Held until all calls have been made, because abort() frees the communicators.
  const auto calls = comms_.hold();
  const NcclComm comm = find_comm(op);
  if (comm == nullptr) return NcclComms::has_ended();
  if (request.envelope) return enqueue_message(op, comm, stream);
  if (is_nccls_own(request, nccl_.has_fp8())) {
    const bool parts =
        request.kind == Collective::kAllgather || request.kind == Collective::kReduceScatter;
    return parts ? enqueue_parts(op, comm, stream) : enqueue_native(op, comm, stream);
  }
  NcclLink link(nccl_, comms_, comm, op);
  return schedules_.enqueue(op, stream, link, held);
}

// Waits for calls that have only begun.
Error NcclPath::group_of_calls(const DeviceOp& op, NcclComm comm,
                               const std::function<NcclResult()>& calls) {
  NcclResult result = nccl_.group_start();
  if (NcclComms::goes_on(result)) {
    const NcclResult called = calls();
    const NcclResult ended = nccl_.group_end();
    result = NcclComms::goes_on(called) ? ended : called;
  }
  return comms_.error_of(result, comm, op.text, op.deadline);
}

// Runs in place, with one call per tensor. All ranks have the same tensors.
Error NcclPath::enqueue_native(const DeviceOp& op, NcclComm comm, Stream stream) {
  const OpSpec& request = op.request;
  const Numbers how = numbers_of(request);
  return group_of_calls(op, comm, [&] {
    NcclResult result = NcclResult::kSuccess;
    op.output.for_each(0, op.output.count(), [&](Bytes piece) {
      if (!NcclComms::goes_on(result)) return;
      std::byte* const at = piece.data();
      const size_t count = piece.size() / dtype_size(request.dtype) * how.each;
      if (request.kind == Collective::kAllreduce)
        result = nccl_.all_reduce(at, at, count, how.type, how.op, comm, stream);
      else if (request.kind == Collective::kBroadcast)
        result = nccl_.broadcast(at, at, count, how.type, request.root, comm, stream);
      else
        result = nccl_.reduce(at, at, count, how.type, how.op, request.root, comm, stream);
    });
    return result;
  });
}

// For an allgather or a reduce-scatter with parts of equal size. Copies the tensors unless each
// side is contiguous.
Error NcclPath::enqueue_parts(const DeviceOp& op, NcclComm comm, Stream stream) {
  static const CompiledSchedule kNoSteps{};
  StreamOp on_stream(op, kNoSteps, rank_, size_, cuda_, stream);
  const Range input{BufferId::kInput, 0, op.input.count()};
  const Range output{BufferId::kOutput, 0, op.output.count()};
  if (output.count == 0) return {};
  const auto from = on_stream.read(input);
  if (!from.ok()) return from.error();
  const auto to = on_stream.place(output);
  if (!to.ok()) return to.error();
  const Numbers how = numbers_of(op.request);
  const bool gathers = op.request.kind == Collective::kAllgather;
  const auto count = static_cast<size_t>(gathers ? input.count : output.count) * how.each;
  const NcclResult result =
      gathers
          ? nccl_.all_gather(from.value(), to.value(), count, how.type, comm, stream)
          : nccl_.reduce_scatter(from.value(), to.value(), count, how.type, how.op, comm, stream);
  if (Error error = comms_.error_of(result, comm, op.text, op.deadline)) return error;
  return on_stream.write(output, to.value());
}

Error NcclPath::enqueue_message(const DeviceOp& op, NcclComm comm, Stream stream) {
  const Envelope& envelope = *op.request.envelope;
  const Buffer& values = envelope.sends ? op.input : op.output;
  if (values.count() == 0) return {};  // the peer has no values, either
  const Bytes bytes = values.contiguous(0, values.count());
  ringdist::check(bytes.data() != nullptr, "a message in several pieces");
  // A group is needed, because NCCL may return success for a single call that has only begun.
  return group_of_calls(op, comm, [&] {
    return envelope.sends ? nccl_.send(bytes.data(), bytes.size(), NcclType::kUint8,
                                       NcclComms::kReceiver, comm, stream)
                          : nccl_.recv(bytes.data(), bytes.size(), NcclType::kUint8,
                                       NcclComms::kSender, comm, stream);
  });
}

Error NcclPath::check() {
  // Events of aborted work are reached, too, so this comes first.
  if (comms_.aborted()) return NcclComms::has_ended();
  const Error error = comms_.check();
  return error ? error : schedules_.check();
}

}  // namespace ringdist::gpu
