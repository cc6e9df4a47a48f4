// One rank's call of an operation by name, until all ranks have made it and it has been run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/op/op.h"
#include "negotiation/order/call_description.h"
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

}  // namespace ringdist
