#include "cuda/stream/compared_calls.h"

#include <atomic>
#include <utility>

#include "plan/planner.h"

namespace ringdist::gpu {

Result<std::shared_ptr<ComparedCalls>> ComparedCalls::make(const DeviceOp& op,
                                                           const Staging& staging) {
  auto flag = staging.pinned->take(sizeof(uint32_t));
  if (!flag.ok()) return flag.error();
  return std::make_shared<ComparedCalls>(op, staging, std::move(flag.value()));
}

ComparedCalls::ComparedCalls(const DeviceOp& op, const Staging& staging,
                             std::shared_ptr<std::byte> flag)
    : group_(staging.group),
      failed_(staging.failed),
      flag_(std::move(flag)),
      text_(op.text),
      rank_(staging.rank),
      own_(fingerprint_of(op.request, op.plan)),
      all_(static_cast<size_t>(staging.size)) {
  *word() = 0;
}

Error ComparedCalls::begin(CudaApi& cuda, Stream stream) {
  return cuda.call(stream, [self = shared_from_this()] {
    const Error error = self->group_->run_on_host(
        self->gathering(), [self](const Error& error) { self->ended(error); });
    if (error) self->ended(error);
  });
}

Error ComparedCalls::end(CudaApi& cuda, Stream stream) { return cuda.hold(stream, word(), 1); }

HostOp ComparedCalls::gathering() {
  HostOp out;
  out.request.kind = Collective::kAllgather;
  out.request.dtype = DType::kBytes;
  out.request.count = sizeof own_;
  out.input = out.output = Buffer(1);
  out.input.append(reinterpret_cast<std::byte*>(&own_), sizeof own_);
  out.output.append(reinterpret_cast<std::byte*>(all_.data()),
                    static_cast<int64_t>(all_.size() * sizeof own_));
  out.keep_alive = shared_from_this();
  return out;
}

void ComparedCalls::ended(const Error& error) {
  if (const Error first = error ? error : disagreement()) failed_->set(first);
  std::atomic_ref(*word()).store(1, std::memory_order_release);
}

Error ComparedCalls::disagreement() const {
  for (size_t rank = 0; rank < all_.size(); ++rank)
    if (all_[rank] != own_)
      return Error(ErrorKind::kMismatch, "ringdist: ranks disagree on " + text_ + ": rank " +
                                             std::to_string(rank_) + " called " + own_.describe() +
                                             ", rank " + std::to_string(rank) + " called " +
                                             all_[rank].describe());
  return {};
}

}  // namespace ringdist::gpu
