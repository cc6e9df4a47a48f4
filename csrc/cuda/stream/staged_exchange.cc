#include "cuda/stream/staged_exchange.h"

#include <string>

#include "base/error.h"
#include "plan/planner.h"

namespace ringdist::gpu {
namespace {

uint32_t* word(const std::shared_ptr<std::byte>& flag) {
  return reinterpret_cast<uint32_t*>(flag.get());
}

// The calls of all ranks, for add_comparison().
struct Calls {
  std::string text;
  int rank;
  Fingerprint own;
  std::vector<Fingerprint> all;
};

// Returns an error that names the first rank with another call, if there is one.
Error disagreement(const Calls& calls) {
  for (size_t rank = 0; rank < calls.all.size(); ++rank)
    if (calls.all[rank] != calls.own)
      return Error(ErrorKind::kMismatch,
                   "ringdist: ranks disagree on " + calls.text + ": rank " +
                       std::to_string(calls.rank) + " called " + calls.own.describe() + ", rank " +
                       std::to_string(rank) + " called " + calls.all[rank].describe());
  return {};
}

}  // namespace

StagedExchange::StagedExchange(std::shared_ptr<RevocableGroup> group,
                               std::shared_ptr<FirstError> failed, std::shared_ptr<std::byte> flag)
    : group_(std::move(group)), failed_(std::move(failed)), flag_(std::move(flag)) {
  *word(flag_) = 0;
}

Error StagedExchange::start(CudaApi& cuda, Stream stream) {
  return cuda.call(stream, [self = shared_from_this()] { self->begin(); });
}

Error StagedExchange::await(CudaApi& cuda, Stream stream) {
  return cuda.wait_flag(stream, word(flag_), 1);
}

void StagedExchange::begin() {
  // The additional one keeps the flag unset until all ops have been started: some may end before.
  open_ = ops_.size() + 1;
  for (Added& one : std::exchange(ops_, {}))
    if (const Error refused = start_one(std::move(one))) ended(refused);
  ended({});
}

// Catches exceptions, because none may pass into CUDA.
Error StagedExchange::start_one(Added one) try {
  return group_->run_on_host(
      one.make(), [self = shared_from_this(), check = std::move(one.check)](const Error& error) {
        self->ended(error || !check ? error : check());
      });
} catch (...) {
  return current_exception_error();
}

void StagedExchange::ended(const Error& error) {
  if (error) failed_->set(error);
  // A stream that sees the flag must also see the values that the ops have written.
  if (--open_ == 0) std::atomic_ref(*word(flag_)).store(1, std::memory_order_release);
}

void add_comparison(const DeviceOp& op, int rank, int size, StagedExchange& to) {
  const auto calls =
      std::make_shared<Calls>(Calls{op.text, rank, fingerprint_of(op.request, op.plan), {}});
  calls->all.resize(static_cast<size_t>(size));
  HostOp gathering;
  gathering.request.kind = Collective::kAllgather;
  gathering.request.dtype = DType::kBytes;
  gathering.request.count = sizeof calls->own;
  gathering.input = gathering.output = Buffer(1);
  gathering.input.append(reinterpret_cast<std::byte*>(&calls->own), sizeof calls->own);
  gathering.output.append(reinterpret_cast<std::byte*>(calls->all.data()),
                          static_cast<int64_t>(calls->all.size() * sizeof calls->own));
  gathering.keep_alive = calls;
  to.add(std::move(gathering), [calls] { return disagreement(*calls); });
}

}  // namespace ringdist::gpu
