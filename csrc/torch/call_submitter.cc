#include "torch/call_submitter.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <type_traits>
#include <utility>

#include "torch/base/devices.h"
#include "torch/base/errors.h"
#include "torch/work/op_work.h"

namespace ringdist {
namespace {

// Calls without tensors fit any device.
bool on_one_device(const Call& a, const Call& b) {
  return a.memory.empty() || b.memory.empty() || a.memory[0].device() == b.memory[0].device();
}

// Returns true if the two calls may become one op.
bool may_fuse(const Call& a, const Call& b) {
  const OpRequest& x = a.request;
  const OpRequest& y = b.request;
  return x.kind == Collective::kAllreduce && y.kind == Collective::kAllreduce &&
         x.dtype == y.dtype && x.reduce_op == y.reduce_op && x.timeout == y.timeout &&
         !x.codec_map && !y.codec_map && on_one_device(a, b);
}

// Adds the tensors of `from` to `into`, which becomes one allreduce of both.
void fuse(Call& into, Call from) {
  for (const at::Tensor& ours : from.memory) into.add(into.request.output, ours);
  into.request.count += from.request.count;
  into.staging.add(std::move(from.staging));
  into.inputs.insert(into.inputs.end(), from.inputs.begin(), from.inputs.end());
  into.outputs.insert(into.outputs.end(), from.outputs.begin(), from.outputs.end());
  into.completions.insert(into.completions.end(), from.completions.begin(), from.completions.end());
  into.type = c10d::OpType::ALLREDUCE_COALESCED;
}

// Returns the calls with consecutive allreduces fused.
std::vector<Call> fused(std::vector<Call> calls) {
  std::vector<Call> out;
  for (Call& call : calls)
    if (!out.empty() && may_fuse(out.back(), call))
      fuse(out.back(), std::move(call));
    else
      out.push_back(std::move(call));
  return out;
}

bool is_message_on_device(const Call& call) {
  return call.request.envelope && !call.memory.empty() && !call.memory[0].is_cpu();
}

// Moves sends before receives, if both are on devices. Other calls stay where they are. Streams may
// share a queue of their device, where a send behind a receive would wait for the peer, which may
// do the same.
void let_sends_go_first(std::vector<Call>& calls) {
  std::vector<Call*> places;
  std::vector<Call> messages;
  for (Call& call : calls) {
    if (!is_message_on_device(call)) continue;
    places.push_back(&call);
    messages.push_back(std::move(call));
  }
  std::ranges::stable_partition(messages,
                                [](const Call& call) { return call.request.envelope->sends; });
  for (size_t i = 0; i < places.size(); ++i) *places[i] = std::move(messages[i]);
}

// Returns true if a profiler records Works. This is cheaper than at::hasCallbacks(), which takes a
// lock.
bool is_profiled() {
  return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value();
}

// Returns for example "ringdist:all_reduce(int4)"; empty if the call has no codec.
std::string coded_title(const Call& call) {
  if (!call.request.codec_map) return {};
  const std::string codecs = call.request.codec_map->describe();  // "int4, 3 parts"
  return call.title + ("(" + codecs.substr(0, codecs.rfind(", ")) + ")");
}

// Returns the name for messages, such as "all_reduce".
std::string_view collective_title(const Call& call) {
  const std::string_view title = call.title;
  return title.substr(title.find(':') + 1);
}

// Describes a call to the profilers of this thread while the call is submitted, so that traces have
// its group, sizes, dtype and number ("record_param_comms", as for c10d's own backends).
class ProfiledCall {
 public:
  ProfiledCall(const Call& call, const Communicator& group)
      : info_(c10::DebugInfoKind::PARAM_COMMS_INFO, describe(call, group)) {
    if (record_.isActive()) record_.before(at::kParamCommsCallName);
  }

 private:
  static std::shared_ptr<torch::ParamCommsDebugInfo> describe(const Call& call,
                                                              const Communicator& group) {
    const OpRequest& request = call.request;
    const std::vector<int>& ranks = group.members();
    const int stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
    bool even = stride > 0;
    for (size_t i = 1; i < ranks.size(); ++i) even = even && ranks[i] - ranks[i - 1] == stride;
    const Buffer& input = traits_of(request.kind).in_place ? request.output : request.input;
    auto out =
        make(call.async, std::make_tuple(group.name(), std::string()), group.rank(),
             std::string(collective_title(call)), input.count(), request.output.count(),
             call.memory.empty() ? at::kByte : call.memory[0].scalar_type(), request.input_parts,
             request.output_parts, ranks.empty() ? 0 : ranks[0], even ? stride : 0, group.size());
    const bool is_message = request.envelope.has_value();
    const auto next = static_cast<int64_t>(group.sequence_number()) + (is_message ? 0 : 1);
    [&](auto& info) {  // torch 2.13 and newer
      if constexpr (requires { info.setSequenceInfo(next, is_message); })
        info.setSequenceInfo(next, is_message);
    }(*out);
    return out;
  }

  // Leaves out `async` for torch below 2.13.
  template <typename Info = torch::ParamCommsDebugInfo, typename... Args>
  static std::shared_ptr<Info> make(bool async, Args&&... args) {
    if constexpr (std::is_constructible_v<Info, Args..., bool>)
      return std::make_shared<Info>(std::forward<Args>(args)..., async);
    else
      return std::make_shared<Info>(std::forward<Args>(args)...);
  }

  const c10::DebugInfoGuard info_;  // before `record_`, which reads it
  at::RecordFunction record_{at::RecordScope::FUNCTION};
};

}  // namespace

// For a region as a whole, which hooks do not report.
CompletionPtr Coalescing::completion() const { return std::make_shared<Completion>(hooks_, 0); }

std::shared_ptr<Coalescing::Region> Coalescing::find() {
  if (count_ == 0) return nullptr;
  std::lock_guard lock(mutex_);
  const auto it = regions_.find(std::this_thread::get_id());
  return it == regions_.end() ? nullptr : it->second;
}

std::shared_ptr<Coalescing::Region> Coalescing::take() {
  if (count_ == 0) return nullptr;
  std::lock_guard lock(mutex_);
  const auto node = regions_.extract(std::this_thread::get_id());
  if (node.empty()) return nullptr;
  --count_;
  return node.mapped();
}

// The region's Work starts the calls when end() or a query needs their outcome.
void Coalescing::begin(RegionSubmitter starter) {
  drop();
  auto region = std::make_shared<Region>();
  region->work = c10::make_intrusive<CombinedWork>(
      completion(), rank_, c10d::OpType::COALESCED,
      [region, starter = std::move(starter)] { return run(*region, starter); });
  std::lock_guard lock(mutex_);
  regions_[std::this_thread::get_id()] = std::move(region);
  ++count_;
}

c10::intrusive_ptr<c10d::Work> Coalescing::collect(Call& call) {
  const auto region = find();
  if (!region) return nullptr;
  std::lock_guard lock(region->mutex);
  if (!region->open) return nullptr;
  // The caller cannot wait at once, because nothing has started. So no wait may be promised.
  call.async = true;
  auto member =
      c10::make_intrusive<CombinedWork>(call.completions.front(), rank_, call.type,
                                        [whole = c10::intrusive_ptr<c10d::Work>(region->work)] {
                                          return CombinedWork::Parts{whole};
                                        });
  region->calls.push_back(std::move(call));
  region->members.push_back(member);
  return member;
}

void Coalescing::adopt(const c10::intrusive_ptr<c10d::Work>& started) {
  const auto region = find();
  if (!region) return;
  std::lock_guard lock(region->mutex);
  region->started.push_back(started);
}

// Runs once per region. The calls are taken under the mutex and submitted without it.
CombinedWork::Parts Coalescing::run(Region& region, const RegionSubmitter& starter) {
  std::vector<Call> calls;
  CombinedWork::Parts parts;
  {
    std::lock_guard lock(region.mutex);
    if (!std::exchange(region.open, false))
      throw_error(Error(ErrorKind::kAborted,
                        "ringdist: the coalescing region of this work was dropped, because one of "
                        "its calls was refused or it was never ended"));
    calls = std::move(region.calls);
    parts = std::exchange(region.started, {});
  }
  calls = fused(std::move(calls));
  let_sends_go_first(calls);
  starter.prepare(calls);
  for (Call& call : calls) parts.push_back(starter.submit(std::move(call)));
  return parts;
}

c10::intrusive_ptr<c10d::Work> Coalescing::end() {
  const auto region = take();
  if (!region) return join_works(completion(), rank_, c10d::OpType::COALESCED, {});
  c10::intrusive_ptr<CombinedWork> work;
  std::vector<c10::intrusive_ptr<CombinedWork>> members;
  {
    std::lock_guard lock(region->mutex);
    work = region->work;
    members.swap(region->members);
  }
  work->start();
  // The region has run, so this starts nothing. Until then isSuccess() of a member is false.
  for (const auto& member : members) member->start();
  // Includes Works that were started after somebody had ended the region by waiting.
  std::lock_guard lock(region->mutex);
  CombinedWork::Parts parts = std::exchange(region->started, {});
  parts.insert(parts.begin(), work);
  return join_works(completion(), rank_, c10d::OpType::COALESCED, std::move(parts));
}

// The Works are moved to locals that are declared before the lock, so they are destroyed without
// it.
void Coalescing::drop() {
  const auto region = take();
  if (!region) return;
  c10::intrusive_ptr<CombinedWork> work;
  std::vector<c10::intrusive_ptr<CombinedWork>> members;
  std::vector<Call> calls;
  std::lock_guard lock(region->mutex);
  region->open = false;
  calls.swap(region->calls);
  members.swap(region->members);
  work.swap(region->work);
}

CallSubmitter::CallSubmitter(std::shared_ptr<Communicator> communicator, c10::DeviceType devices)
    : communicator_(std::move(communicator)),
      devices_(devices),
      coalescing_(communicator_->rank(), communicator_->hooks()) {}

std::optional<c10::Device> CallSubmitter::device_of(const Call& call) const {
  return value_of(ringdist::device_of(collective_title(call), call.memory, devices_));
}

// The request's `keep_alive` holds the tensors until the op needs them no more.
WorkPtr CallSubmitter::submit(Call call) {
  const auto device = device_of(call);
  if (device && call.request.envelope && call.request.envelope->peer == communicator_->rank())
    throw_error(Error(ErrorKind::kNotSupported, "ringdist: " + std::string(collective_title(call)) +
                                                    ": the peer is this rank, " +
                                                    "and the tensor is on " + device->str() +
                                                    "; send to oneself needs the CPU"));
  const bool profiled = is_profiled();
  const std::string coded = profiled ? coded_title(call) : std::string();
  std::optional<ProfiledCall> described;
  if (profiled) described.emplace(call, *communicator_);
  call.request.keep_alive = std::make_shared<Tensors>(std::move(call.memory));
  // On a device, results are copied to the caller's tensors on a stream, and no thread waits for
  // them.
  const bool settles = call.staging.must_finish() && !device;
  if (call.completions.front()->wanted() && !settles)
    call.request.on_end = [completions = call.completions](const Error& error) {
      if (error) return;
      for (const auto& completion : completions) completion->arrive();
    };
  call.request.output_staged = settles;
  if (device) call.request.device_stream = place_on(*device);
  auto op = communicator_->submit(std::move(call.request), /*will_wait=*/!call.async);
  described.reset();  // before hooks, which may end a profile
  // If the group has failed, its hooks run before the call throws.
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

// Orders sends and receives by pairs of ranks, as Communicator::prepare() demands.
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

WorkPtr CallScope::submit(Call call) {
  WorkPtr work = submitter_.start(call, submitter_.make_completion(1));
  submitted_ = true;
  return work;
}

WorkPtr CallScope::submit_all(c10d::OpType type, std::vector<Call> calls) {
  CompletionPtr completion = submitter_.make_completion(calls.size());
  CombinedWork::Parts parts;
  for (Call& call : calls) parts.push_back(submitter_.start(call, completion));
  WorkPtr work =
      join_works(std::move(completion), submitter_.communicator_->rank(), type, std::move(parts));
  submitted_ = true;
  return work;
}

WorkPtr CallScope::add(WorkPtr started) {
  submitter_.coalescing_.adopt(started);
  submitted_ = true;
  return started;
}

}  // namespace ringdist
