#include "torch/call_submitter.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

#include "torch/devices.h"
#include "torch/errors.h"
#include "torch/work/device_op_work.h"
#include "torch/work/host_op_work.h"

namespace ringdist {
namespace {

// Of a Work: cheaper than at::hasCallbacks(), which takes a lock.
bool is_profiled() {
  return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value();
}

// "ringdist:all_reduce(int4)"; empty if it has no codec.
std::string coded_title(const Call& call) {
  if (!call.request.codec_map) return {};
  const std::string codecs = call.request.codec_map->describe();  // "int4, 3 parts"
  return call.title + ("(" + codecs.substr(0, codecs.rfind(", ")) + ")");
}

// "all_reduce", for messages.
std::string_view collective_title(const Call& call) {
  const std::string_view title = call.title;
  return title.substr(title.find(':') + 1);
}

}  // namespace

CallSubmitter::CallSubmitter(std::shared_ptr<Communicator> communicator, c10::DeviceType devices)
    : communicator_(std::move(communicator)),
      devices_(devices),
      coalescing_(communicator_->rank(), communicator_->hooks()) {}

std::optional<c10::Device> CallSubmitter::device_of(const Call& call) const {
  return value_of(ringdist::device_of(collective_title(call), call.memory, devices_));
}

WorkPtr CallSubmitter::submit(Call call) {
  const auto device = device_of(call);
  if (device && call.request.envelope && call.request.envelope->peer == communicator_->rank())
    throw_error(Error(ErrorKind::kNotSupported, "ringdist: " + std::string(collective_title(call)) +
                                                    ": the peer is this rank, " +
                                                    "and the tensor is on " + device->str() +
                                                    "; send to oneself needs the CPU"));
  call.request.keep_alive = std::make_shared<Tensors>(std::move(call.memory));
  // On a device, results go back to the caller's tensors on a stream, where nobody waits for them.
  const bool settles = call.staging.must_finish() && !device;
  if (call.completions.front()->wanted() && !settles)
    call.request.on_end = [completions = call.completions](const Error& error) {
      if (error) return;
      for (const auto& completion : completions) completion->arrive();
    };
  call.request.output_staged = settles;
  if (device) call.request.device_stream = place_on(*device);
  const bool profiled = is_profiled();
  const std::string coded = profiled ? coded_title(call) : std::string();
  auto op = communicator_->submit(std::move(call.request), /*will_wait=*/!call.async);
  if (op.error()) communicator_->run_failure_hooks();
  throw_if(op.error());
  const char* const title = profiled ? (coded.empty() ? call.title : coded.c_str()) : nullptr;
  if (device)
    return DeviceOpWork::create(communicator_, op.value(), *device, call.type, title,
                                std::move(call.inputs), std::move(call.outputs), call.staging,
                                std::move(call.completions.front()));
  return HostOpWork::create(communicator_, op.value(), call.type, title, std::move(call.inputs),
                            std::move(call.outputs), std::move(call.staging),
                            std::move(call.completions));
}

WorkPtr CallSubmitter::start(Call& call, const CompletionPtr& completion) {
  call.completions.push_back(completion);
  WorkPtr work = coalescing_.collect(call);
  if (!work) coalescing_.adopt(work = submit(std::move(call)));
  return work;
}

WorkPtr CallSubmitter::start_all(c10d::OpType type, std::vector<Call> calls) {
  CompletionPtr completion = make_completion(calls.size());
  CombinedWork::Parts parts;
  for (Call& call : calls) parts.push_back(start(call, completion));
  return join_works(std::move(completion), communicator_->rank(), type, std::move(parts));
}

// Sends and receives by pairs of ranks: as Communicator::prepare() wants it.
void CallSubmitter::prepare(const std::vector<Call>& calls) const {
  std::vector<OpRequest> messages;
  for (const Call& call : calls) {
    const auto device = device_of(call);
    if (!device || !call.request.envelope) continue;
    messages.push_back(call.request);
    messages.back().device_stream = place_on(*device);
  }
  std::vector<const OpRequest*> order;
  for (const OpRequest& message : messages) order.push_back(&message);
  std::ranges::stable_sort(order, {}, [rank = communicator_->rank()](const OpRequest* request) {
    const int peer = request->envelope->peer;
    return std::pair(std::min(rank, peer), std::max(rank, peer));
  });
  if (!order.empty()) throw_if(communicator_->prepare(order));
}

void CallSubmitter::begin_region() {
  const auto self = [weak = weak_from_this()] {
    auto found = weak.lock();
    if (!found)
      throw_error(
          Error(ErrorKind::kAborted, "ringdist: the group of this work has been destroyed"));
    return found;
  };
  coalescing_.begin({[self](const std::vector<Call>& calls) { self()->prepare(calls); },
                     [self](Call call) { return self()->submit(std::move(call)); }});
}

WorkPtr CallSubmitter::end_region() { return coalescing_.end(); }

}  // namespace ringdist
