// Everybody has messages for everybody, or the root has: cores and the lines of hosts are busy with
// them; there is hardly a way to wait for.
#include <algorithm>
#include <source_location>

#include "algorithm/cost.h"
#include "base/check.h"

namespace ringdist {
namespace {

// The busiest rank's messages to all others, and theirs.
class AllPeers {
 public:
  explicit AllPeers(const CostQuery& question) : question_(question), at_(question.layout) {}

  // Each gets a range of its own.
  TransferCost exchange(double range) const { return all(range, at_.least - 1); }
  // All get the same, which is copied once; or as it is made, where `copied` is less.
  TransferCost spread(double range, double copied) const {
    return all(range, std::min<double>(copied, at_.least - 1));
  }
  TransferCost to_root(double range) const {
    TransferCost out = at_root(range);
    return out.receive(true, at_.at_root - 1).receive(false, at_.elsewhere(at_.at_root));
  }
  TransferCost from_root(double range, double copied) const {
    TransferCost out = at_root(range);
    return out.send(true, at_.at_root - 1, copied).send(false, at_.elsewhere(at_.at_root));
  }

  // Of long parts between hosts: each waits for those of the turn before.
  double turns(double range) const {
    TransferCost one(question_, range);
    one.send(false, 1).receive(false, 1).cross(1);
    return at_.elsewhere(at_.least) * one.alone();
  }

 private:
  TransferCost at_root(double range) const {
    TransferCost out(question_, range);
    return out.one_sided().cross(at_.elsewhere(at_.at_root)).share(at_.at_root - 1);
  }
  // The rank with most beyond its host.
  TransferCost all(double range, double copied) const {
    TransferCost out(question_, range);
    const double here = at_.least - 1;
    const double elsewhere = at_.elsewhere(at_.least);
    out.send(true, here, copied).receive(true, here).share(at_.most * (at_.most - 1.0));
    return out.send(false, elsewhere).receive(false, elsewhere).cross(at_.crowd);
  }

  const CostQuery& question_;
  const CostLayout& at_;
};

}  // namespace

Duration direct_cost(const CostQuery& question) {
  const int size = question.layout.size;
  if (size == 1) return Duration(0);
  const double bytes = question.bytes;
  const double others = size - 1;
  const AllPeers all(question);
  OpCost sum(question);
  switch (question.kind) {
    case Collective::kAllreduce: {
      const double shard = bytes / size;
      sum.then(all.exchange(shard)).then(all.spread(shard, kStoredCopy)).add(others * shard);
      break;
    }
    case Collective::kReduceScatter:
      sum.then(all.exchange(bytes)).add(others * bytes);
      break;
    case Collective::kAlltoall:
      if (question.layout.spans() && bytes >= question.element_bytes * kTurnCount)
        sum.load(all.exchange(bytes)).chain(all.turns(bytes));
      else
        sum.then(all.exchange(bytes));
      break;
    case Collective::kAllgather:
      sum.then(all.spread(bytes, 1));
      break;
    case Collective::kReduce:
      sum.then(all.to_root(bytes)).add(others * bytes);
      break;
    case Collective::kGather:
      sum.then(all.to_root(bytes));
      break;
    case Collective::kScatter:
      sum.then(all.from_root(bytes, question.layout.at_root - 1));
      break;
    case Collective::kBroadcast:
      sum.then(all.from_root(bytes, std::min(1, question.layout.at_root - 1)));
      break;
    default:
      check_failed("a cost of what the algorithm does not have", std::source_location::current());
  }
  return sum.total();
}

}  // namespace ringdist
