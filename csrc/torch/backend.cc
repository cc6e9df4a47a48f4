#include "torch/backend.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "torch/errors.h"
#include "torch/store.h"
#include "torch/tensors.h"
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

ProcessGroupRing::ProcessGroupRing(std::shared_ptr<Communicator> communicator, CodecPair codecs)
    : Backend(communicator->rank(), communicator->size()),
      communicator_(std::move(communicator)),
      codecs_(std::move(codecs)),
      coalescing_(getRank(), communicator_->hooks()),
      sparse_(communicator_) {}

// Dropped without shutdown(): what is in flight may still finish, so that others are not left
// waiting.
ProcessGroupRing::~ProcessGroupRing() = default;

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupRing::getBackendOptions() {
  auto options = c10::make_intrusive<c10d::Backend::Options>("ringdist");
  options->group_name = communicator_->name();
  options->timeout = communicator_->timeout();
  for (const int rank : communicator_->members())
    options->global_ranks_in_group.push_back(static_cast<uint64_t>(rank));
  return options;
}

void ProcessGroupRing::setTimeout(std::chrono::milliseconds timeout) {
  communicator_->set_timeout(timeout);
}

c10d::ErrorType ProcessGroupRing::getError() {
  const Error error = communicator_->failure();
  if (!error) return c10d::ErrorType::SUCCESS;
  if (error.kind() == ErrorKind::kTimeout) return c10d::ErrorType::TIMEOUT;
  const bool remote = !error.ranks().empty() && error.ranks()[0] != getRank();
  return remote ? c10d::ErrorType::REMOTE_ERROR : c10d::ErrorType::COMM_ERROR;
}

void ProcessGroupRing::abort() {
  communicator_->abort("rank " + std::to_string(getRank()) + " aborted the group");
}

void ProcessGroupRing::shutdown() {
  sparse_.wait_until_idle();
  communicator_->close();
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupRing::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  for (const int rank : ranks)
    if (rank < 0 || rank >= getSize())
      throw_error(invalid_argument("split_group", "ranks has rank " + std::to_string(rank) +
                                                      "; this group has 0 to " +
                                                      std::to_string(getSize() - 1)));
  if (std::ranges::find(ranks, getRank()) == ranks.end()) return nullptr;
  std::string name = "split";
  for (const int rank : ranks) name += " " + std::to_string(rank);
  auto codecs =
      parse_coding("option codec", communicator_->config().codec, static_cast<int>(ranks.size()));
  throw_if(codecs.error());
  // Other ranks may be split off under the same prefix of the store.
  const auto own = c10::make_intrusive<c10d::PrefixStore>(name, store);
  if (opts && !opts->group_name.empty()) name = opts->group_name;
  auto communicator = communicator_->subgroup(ranks, wrap_store(own, communicator_->context()),
                                              name, opts ? opts->timeout : kBackendDefaultTimeout);
  throw_if(communicator.error());
  return c10::make_intrusive<ProcessGroupRing>(communicator.value(), codecs.value());
}

ProcessGroupRing::WorkPtr ProcessGroupRing::submit(Call call) {
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

ProcessGroupRing::WorkPtr ProcessGroupRing::run(const std::function<Call()>& make) {
  return run_all(c10d::OpType::UNKNOWN, [&] {
    std::vector<Call> out;
    out.push_back(make());
    return out;
  });
}

ProcessGroupRing::WorkPtr ProcessGroupRing::run_all(
    c10d::OpType type, const std::function<std::vector<Call>()>& make) {
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
  return join_works(std::move(completion), getRank(), type, std::move(parts));
}

void ProcessGroupRing::startCoalescing() {
  const c10::weak_intrusive_ptr<ProcessGroupRing> weak(
      c10::intrusive_ptr<ProcessGroupRing>::reclaim_copy(this));
  coalescing_.begin([weak](Call call) {
    const auto self = weak.lock();
    if (!self)
      throw_error(
          Error(ErrorKind::kAborted, "ringdist: the group of this work has been destroyed"));
    return self->submit(std::move(call));
  });
}

ProcessGroupRing::WorkPtr ProcessGroupRing::endCoalescing() { return coalescing_.end(); }

#if RINGDIST_TORCH_HAS_ABORT_HOOKS
void ProcessGroupRing::registerAbortHook(int64_t hook_id, c10d::AbortHook hook) {
  communicator_->hooks()->failed.add(hook_id, std::move(hook));
}

void ProcessGroupRing::unregisterAbortHook(int64_t hook_id) {
  communicator_->hooks()->failed.remove(hook_id);
}
#endif

#if RINGDIST_TORCH_HAS_COMPLETION_HOOKS
void ProcessGroupRing::registerCompletionHook(int64_t hook_id, c10d::CompletionHook hook) {
  communicator_->hooks()->succeeded.add(hook_id,
                                        [hook = std::move(hook)](uint64_t key, float milliseconds) {
                                          hook({.completionKey = key, .duration_ms = milliseconds});
                                        });
}

void ProcessGroupRing::unregisterCompletionHook(int64_t hook_id) {
  communicator_->hooks()->succeeded.remove(hook_id);
}
#endif

}  // namespace ringdist
