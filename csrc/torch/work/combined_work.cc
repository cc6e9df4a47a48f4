#include "torch/work/combined_work.h"

#include <algorithm>
#include <utility>

#include "torch/work/future.h"

namespace ringdist {

CombinedWork::CombinedWork(CompletionPtr completion, int rank, c10d::OpType type,
                           std::function<Parts()> make)
    : BaseWork(std::move(completion), rank, type), make_(std::move(make)) {}

const CombinedWork::Parts& CombinedWork::parts() {
  std::lock_guard lock(parts_mutex_);
  // The mutex is held while `make` runs. Another thread that needs the outcome waits for it here.
  if (const auto make = std::exchange(make_, nullptr)) {
    try {
      parts_ = make();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  return parts_;  // constant from here on
}

std::exception_ptr CombinedWork::failure() const {
  std::lock_guard lock(parts_mutex_);
  return failure_;
}

void CombinedWork::start() {
  parts();
  if (const auto error = failure()) std::rethrow_exception(error);
}

bool CombinedWork::isCompleted() {
  if (!asked_.exchange(true)) {
    std::lock_guard lock(parts_mutex_);
    if (make_) return false;
  }
  return std::ranges::all_of(parts(), [](const auto& part) { return part->isCompleted(); });
}

bool CombinedWork::isSuccess() const {
  std::lock_guard lock(parts_mutex_);
  return !make_ && !failure_ &&
         std::ranges::all_of(parts_, [](const auto& part) { return part->isSuccess(); });
}

std::exception_ptr CombinedWork::exception() const {
  std::lock_guard lock(parts_mutex_);
  if (failure_) return failure_;
  for (const auto& part : parts_)
    if (const auto error = part->exception()) return error;
  return nullptr;
}

int CombinedWork::sourceRank() const {
  std::lock_guard lock(parts_mutex_);
  TORCH_CHECK(parts_.size() == 1,
              "ringdist: only the work of one recv has a source rank; this is that of ",
              parts_.size(), " operations");
  return parts_[0]->sourceRank();
}

std::vector<at::Tensor> CombinedWork::result() {
  std::vector<at::Tensor> out;
  for (const auto& part : parts()) {
    const auto some = part->result();
    out.insert(out.end(), some.begin(), some.end());
  }
  return out;
}

// Each part gets the time that is left of the limit.
void CombinedWork::await(std::optional<Milliseconds> limit) {
  const TimePoint deadline = deadline_after(limit);
  start();
  for (const auto& part : parts()) {
    auto left = kNoTimeout;
    if (limit)  // at least 1 ms, because 0 means no limit
      left = milliseconds_until(deadline);
    part->wait(left);
  }
}

void CombinedWork::abort() {
  for (const auto& part : parts()) part->abort();
}

// If the operations could not be started, the Future has that error at once.
FuturePtr CombinedWork::make_future() {
  const Parts& all = parts();
  const auto error = failure();
  auto join = std::make_shared<CombinedFuture>(result(), error ? 1 : all.size());
  if (error) join->arrive(error);
  for (const auto& part : all) CombinedFuture::follow(join, *part->getFuture());
  return join->future();
}

uint64_t CombinedWork::getSequencenumber() const {
  std::lock_guard lock(parts_mutex_);
  return parts_.empty() ? 0 : parts_.back()->getSequencenumber();
}

c10::intrusive_ptr<c10d::Work> join_works(CompletionPtr completion, int rank, c10d::OpType type,
                                          CombinedWork::Parts parts) {
  if (parts.size() == 1) return parts[0];
  auto work = c10::make_intrusive<CombinedWork>(
      std::move(completion), rank, type,
      [parts = std::move(parts)]() mutable { return std::move(parts); });
  work->start();
  return work;
}

}  // namespace ringdist
