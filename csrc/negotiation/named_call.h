// One rank's call of an operation by name, until all ranks have made it and it has been run.
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

struct NamedCall {
  std::string name;
  std::string operation;  // for people: "allreduce"
  CallDescription description;
  // What this rank says of its own part alone, as the rows of an allgather; of calls that have some
  // on all ranks.
  std::optional<std::vector<int64_t>> extra;
  // Called once, when all have made it, with what each rank has said; with a lane's token: brief,
  // without the GIL. The ops that it is, in order: none of a barrier, one of a call that may travel
  // with others. An Error, or what it throws, ends the group on all ranks.
  std::function<Result<std::vector<OpRequest>>(const ExtrasByRank&)> requests;
  Milliseconds timeout{0};  // from the call until all have made it; 0: the group's
};

// Calls that run together: several as one op, or one as several.
class FusedCalls {
 public:
  // Before add(): what a caller waits for, and what lives until all has ended.
  void add_end(std::shared_ptr<Op> end) { ends_.push_back(std::move(end)); }
  void keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }
  // The ops of one call. Of several calls each has one, and they are alike: they become one op over
  // the memory of all, in their order.
  void add(std::vector<OpRequest> parts);

  // What is recorded when it has ended.
  void add_span(TraceSpan span) { spans_.push_back(std::move(span)); }
  const std::vector<TraceSpan>& spans() const { return spans_; }

  // What is to be run; each holds what was kept. Taken once.
  std::vector<OpRequest> take_requests();
  // Ops that run, for who waits to let them go: on a lane that would take a thread of the pool.
  using Running = std::shared_ptr<std::vector<std::shared_ptr<Op>>>;
  const Running& running() const { return running_; }
  // One of those has ended, or was not started. True: all have.
  bool end_one(const Error& error);
  // The first.
  const Error& error() const { return error_; }
  // Those that were added; once, as they hold what runs, and that holds the batch.
  std::vector<std::shared_ptr<Op>> take_ends();

 private:
  void merge(OpRequest part);

  std::vector<OpRequest> requests_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<std::shared_ptr<Op>> ends_;
  Running running_;
  std::vector<TraceSpan> spans_;
  size_t open_ = 0;
  Error error_;
};

}  // namespace ringdist
