#include "cuda/stream/call_comparison.h"

#include <string>

#include "plan/planner.h"

namespace ringdist::gpu {
namespace {

struct Calls {
  std::string text;
  int rank;
  Fingerprint own;
  std::vector<Fingerprint> all;
};

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
