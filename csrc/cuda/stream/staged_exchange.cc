#include "cuda/stream/staged_exchange.h"

#include "base/current_exception.h"

namespace ringdist::gpu {
namespace {

uint32_t* word(const std::shared_ptr<std::byte>& flag) {
  return reinterpret_cast<uint32_t*>(flag.get());
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
  open_ = ops_.size() + 1;
  for (Added& one : std::exchange(ops_, {}))
    if (const Error refused = start_one(std::move(one))) ended(refused);
  ended({});
}

// Nothing may be thrown into CUDA.
Error StagedExchange::start_one(Added one) try {
  return group_->run_on_host(
      one.make(), [self = shared_from_this(), verdict = std::move(one.verdict)](
                      const Error& error) { self->ended(error || !verdict ? error : verdict()); });
} catch (...) {
  return current_exception_error();
}

void StagedExchange::ended(const Error& error) {
  if (error) failed_->set(error);
  if (--open_ == 0) std::atomic_ref(*word(flag_)).store(1, std::memory_order_release);
}

}  // namespace ringdist::gpu
