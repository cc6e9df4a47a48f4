// What serves the calls of a ProcessGroupRing: a Communicator and what is made for it. A group that
// is reconfigured gets another one.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "engine/communicator.h"
#include "torch/call_submitter.h"
#include "torch/ops/call.h"
#include "torch/ops/call_compressor.h"
#include "torch/sparse_reducer.h"

namespace ringdist {

struct ActiveGroup {
  ActiveGroup(std::shared_ptr<Communicator> group, CodecPair codecs)
      : communicator(std::move(group)),
        ranks{communicator->rank(), communicator->size()},
        compressor(communicator->size(), std::move(codecs)),
        runner(std::make_shared<CallSubmitter>(communicator)),
        sparse(communicator) {}

  const std::shared_ptr<Communicator> communicator;
  const RankAndSize ranks;
  const CallCompressor compressor;
  const std::shared_ptr<CallSubmitter> runner;
  SparseReducer sparse;
  std::atomic<bool> aborted_here{false};  // by a call on this rank
};

}  // namespace ringdist
