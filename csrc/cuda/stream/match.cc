#include "cuda/stream/match.h"

#include <cstring>
#include <string>

#include "plan/planner.h"

namespace ringdist::gpu {
namespace {

// What all ranks have called, one after another.
class Calls {
 public:
  Calls(const DeviceOp& op, int rank, int size)
      : text_(op.text), rank_(rank), own_(fingerprint_of(op.request, op.plan)) {
    all_.resize(static_cast<size_t>(size));
  }

  HostOp gathering(const std::shared_ptr<Calls>& self) {
    HostOp out;
    out.request.kind = Collective::kAllgather;
    out.request.dtype = DType::kBytes;
    out.request.count = sizeof(Fingerprint);
    out.input = out.output = Buffer(1);
    out.input.append(reinterpret_cast<std::byte*>(&own_), sizeof own_);
    out.output.append(reinterpret_cast<std::byte*>(all_.data()),
                      static_cast<int64_t>(all_.size() * sizeof own_));
    out.keep_alive = self;
    return out;
  }

  Error disagreement() const {
    for (size_t rank = 0; rank < all_.size(); ++rank)
      if (all_[rank] != own_)
        return Error(ErrorKind::kMismatch, "ringdist: ranks disagree on " + text_ + ": rank " +
                                               std::to_string(rank_) + " called " +
                                               own_.describe() + ", rank " + std::to_string(rank) +
                                               " called " + all_[rank].describe());
    return {};
  }

 private:
  const std::string text_;
  const int rank_;
  Fingerprint own_;
  std::vector<Fingerprint> all_;
};

}  // namespace

Error compare_calls(const DeviceOp& op, const Staging& staging, Stream stream) {
  const auto calls = std::make_shared<Calls>(op, staging.rank, staging.size);
  return staging.cuda.call(stream, [calls, group = staging.group, failed = staging.failed] {
    const Error error =
        group->run_on_host(calls->gathering(calls), [calls, failed](const Error& error) {
          if (const Error first = error ? error : calls->disagreement()) failed->set(first);
        });
    if (error) failed->set(error);
  });
}

}  // namespace ringdist::gpu
