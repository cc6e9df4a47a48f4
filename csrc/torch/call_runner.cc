#include "torch/call_runner.h"

#include <ATen/record_function.h>

#include <utility>

#include "torch/errors.h"
#include "torch/work/ring_work.h"

namespace ringdist {
namespace {

// "ringdist:all_reduce(int4)"; empty if it has no codec, or no profiler asks.
std::string coded_title(const Call& call) {
  if (!call.request.blocks || !at::hasCallbacks()) return {};
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
  const std::string coded = coded_title(call);
  auto op = communicator_->submit(std::move(call.request), /*will_wait=*/!call.async);
  if (op.error()) communicator_->tell_failure();
  throw_if(op.error());
  return RingWork::create(communicator_, op.value(), call.type,
                          coded.empty() ? call.title : coded.c_str(), std::move(call.inputs),
                          std::move(call.outputs), std::move(call.staging),
                          std::move(call.completions));
}

WorkPtr CallRunner::run(const std::function<Call()>& make) {
  return run_all(c10d::OpType::UNKNOWN, [&] {
    std::vector<Call> out;
    out.push_back(make());
    return out;
  });
}

WorkPtr CallRunner::run_all(c10d::OpType type, const std::function<std::vector<Call>()>& make) {
  JoinedWork::Parts parts;
  CompletionPtr completion;
  try {
    std::vector<Call> calls = make();
    completion = std::make_shared<Completion>(communicator_->hooks(), calls.size());
    for (Call& call : calls) {
      call.completions = {completion};
      WorkPtr work = coalescing_.collect(call);
      if (!work) coalescing_.adopt(work = submit(std::move(call)));
      parts.push_back(std::move(work));
    }
  } catch (...) {
    coalescing_.drop();
    throw;
  }
  return join_works(std::move(completion), communicator_->rank(), type, std::move(parts));
}

WorkPtr CallRunner::run_started(const std::function<WorkPtr()>& start) {
  try {
    WorkPtr work = start();
    coalescing_.adopt(work);
    return work;
  } catch (...) {
    coalescing_.drop();
    throw;
  }
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
