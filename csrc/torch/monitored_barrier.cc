#include "torch/monitored_barrier.h"

#include <optional>
#include <string>
#include <vector>

#include "torch/base/errors.h"
#include "torch/work/interrupts.h"

namespace ringdist {
namespace {

std::string milliseconds(std::chrono::milliseconds time) {
  return std::to_string(time.count()) + " ms";
}

// "Ranks 1, 2 failed to pass monitoredBarrier in 500 ms"
std::string failed_to_pass(const std::vector<int>& absent, bool all_ranks,
                           const std::string& limit) {
  std::string names = std::to_string(absent[0]);
  for (size_t i = 1; all_ranks && i < absent.size(); ++i) names += ", " + std::to_string(absent[i]);
  return (all_ranks && absent.size() > 1 ? "Ranks " : "Rank ") + names +
         " failed to pass monitoredBarrier" + limit;
}

}  // namespace

// An ordinary barrier: desync detection finds the missing ranks, also if the others have called
// another collective. The messages begin with the words of gloo's monitored barrier.
void monitored_barrier(Communicator& group, const c10d::BarrierOptions& opts, bool all_ranks) {
  const std::string us = "ringdist: Rank " + std::to_string(group.rank());
  const std::string reached =
      us + " successfully reached monitoredBarrier, but received errors while waiting for " +
      "send/recv from rank 0: ";
  const bool unset = opts.timeout == c10d::kUnsetTimeout;
  const Milliseconds timeout =
      unset ? Milliseconds(0) : value_of(checked_timeout("monitored_barrier", opts.timeout));
  const std::string limit = unset ? "" : " in " + milliseconds(timeout);
  if (!unset && timeout.count() == 0)
    throw_error(Error(ErrorKind::kTimeout,
                      us + " timed out in monitoredBarrier after " + milliseconds(timeout)));
  OpRequest request;
  request.kind = Collective::kBarrier;
  request.dtype = DType::kBytes;
  request.timeout = timeout;
  auto op = group.submit(std::move(request), /*will_wait=*/true);
  if (op.error()) group.run_failure_hooks();
  throw_if(op.error());
  wait_in_slices(std::nullopt, [&](auto slice) { return group.wait(*op.value(), slice); });
  const Error error = op.value()->error();
  if (!error) return;
  group.run_failure_hooks();
  const std::vector<int> absent =
      error.kind() == ErrorKind::kTimeout ? error.ranks() : std::vector<int>();
  if (!absent.empty() && group.rank() == 0)
    throw_error(error.prefixed("ringdist: " + failed_to_pass(absent, all_ranks, limit) + ": "));
  if (!absent.empty())
    throw_error(error.prefixed(reached + failed_to_pass(absent, all_ranks, limit) + ": "));
  if (error.kind() == ErrorKind::kTimeout)
    throw_error(error.prefixed(us + " timed out in monitoredBarrier" + limit + ": "));
  throw_error(error.prefixed(reached));
}

}  // namespace ringdist
