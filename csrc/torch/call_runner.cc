#include "torch/call_runner.h"

#include <ATen/record_function.h>

#include <utility>

#include "torch/errors.h"
#include "torch/work/ring_work.h"

namespace ringdist {
namespace {

// Of a Work: cheaper than at::hasCallbacks(), which takes a lock.
bool is_profiled() {
  return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value();
}

// "ringdist:all_reduce(int4)"; empty if it has no codec.
std::string coded_title(const Call& call) {
  if (!call.request.blocks) return {};
  const std::string codecs = call.request.blocks->describe();  // "int4, 3 parts"
  return call.title + ("(" + codecs.substr(0, codecs.rfind(", ")) + ")");
}

}  // namespace

CallRunner::CallRunner(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)),
      coalescing_(communicator_->rank(), communicator_->hooks()) {}

WorkPtr CallRunner::submit(Call call) {
  call.request.keep_alive = std::make_shared<Tensors>(std::move(call.memory));
  if (call.completions.front()->wanted() && !call.staging.must_finish())
    call.request.succeeded = [completions = call.completions] {
      for (const auto& completion : completions) completion->arrive();
    };
  call.request.hands_over = call.staging.must_finish();
  const bool profiled = is_profiled();
  const std::string coded = profiled ? coded_title(call) : std::string();
  auto op = communicator_->submit(std::move(call.request), /*will_wait=*/!call.async);
  if (op.error()) communicator_->tell_failure();
  throw_if(op.error());
  return RingWork::create(communicator_, op.value(), call.type,
                          profiled ? (coded.empty() ? call.title : coded.c_str()) : nullptr,
                          std::move(call.inputs), std::move(call.outputs), std::move(call.staging),
                          std::move(call.completions));
}

WorkPtr CallRunner::start(Call& call, const CompletionPtr& completion) {
  call.completions.push_back(completion);
  WorkPtr work = coalescing_.collect(call);
  if (!work) coalescing_.adopt(work = submit(std::move(call)));
  return work;
}

WorkPtr CallRunner::start_all(c10d::OpType type, std::vector<Call> calls) {
  CompletionPtr completion = make_completion(calls.size());
  JoinedWork::Parts parts;
  for (Call& call : calls) parts.push_back(start(call, completion));
  return join_works(std::move(completion), communicator_->rank(), type, std::move(parts));
}

void CallRunner::begin_region() {
  coalescing_.begin([weak = weak_from_this()](Call call) {
    const auto self = weak.lock();
    if (!self)
      throw_error(
          Error(ErrorKind::kAborted, "ringdist: the group of this work has been destroyed"));
    return self->submit(std::move(call));
  });
}

WorkPtr CallRunner::end_region() { return coalescing_.end(); }

}  // namespace ringdist
