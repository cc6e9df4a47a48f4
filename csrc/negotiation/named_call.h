// One rank's call of an operation by name, and the calls that are fused into one batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/trace_recorder.h"
#include "engine/op/op.h"
#include "negotiation/order/call_messages.h"
#include "negotiation/order/response_cache.h"

namespace ringdist {

// A call as its rank has made it. It is open until all ranks have made it.
struct NamedCall {
  std::string name;
  std::string operation;  // kind for display, such as "allreduce"
  CallDescription description;
  // This rank's own part, such as the rows of an allgather. It is set for calls in which every rank
  // has such values.
  std::optional<std::vector<int64_t>> extra;
  // Returns the ops of the call. It is called once when all ranks have made the call, with the
  // extras of all ranks, and with a lane's progress lock held. It must return quickly and runs
  // without the GIL.
  //
  // The result is in order: no op for a barrier, and one op for a call that may be fused. An Error
  // or an exception ends the group on all ranks.
  std::function<Result<std::vector<OpRequest>>(const ExtrasByRank&)> requests;
  Milliseconds timeout{0};  // from the call until all ranks have made it; 0 for the group's timeout
};

// A batch of calls: several calls that run as one op, or one call that runs as several ops. All
// functions require the progress lock of the negotiation's lane.
class FusedCalls {
 public:
  // Adds what a caller waits for, and memory that must live until the batch has ended. Both come
  // before add().
  void add_end(std::shared_ptr<Op> end) { ends_.push_back(std::move(end)); }
  void keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }
  // Adds the ops of one call. If there are several calls, each must have one op of the same kind.
  // They are fused into one op over all memory, in the order of the calls.
  void add(std::vector<OpRequest> parts);

  // Adds a span that will be recorded when the batch has ended.
  void add_span(TraceSpan span) { spans_.push_back(std::move(span)); }
  const std::vector<TraceSpan>& spans() const { return spans_; }

  // Returns the ops to run, which keep the memory alive. May be called once.
  std::vector<OpRequest> take_requests();
  // Ops that have been started. A waiter releases them, because releasing them on a lane would need
  // a thread of the pool. running() is null before take_requests() and after take_ends(). Keep a
  // copy while starting ops, because the batch may end meanwhile.
  using Running = std::shared_ptr<std::vector<std::shared_ptr<Op>>>;
  const Running& running() const { return running_; }
  // Records that one op has ended or could not be started. Returns true if it was the last one.
  bool end_one(const Error& error);
  // Returns the first error.
  const Error& error() const { return error_; }
  // Returns the ops that callers wait for. May be called once. This breaks the cycle from the batch
  // through these ops and the running ops back to the batch.
  std::vector<std::shared_ptr<Op>> take_ends();

 private:
  // Appends the op's memory to the fused op.
  void merge(const OpRequest& part);

  std::vector<OpRequest> requests_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<std::shared_ptr<Op>> ends_;
  Running running_;
  std::vector<TraceSpan> spans_;
  size_t open_ = 0;  // number of ops that have not ended
  Error error_;
};

}  // namespace ringdist
