// The ops whose messages are kept in tests/cpp/engine/golden: every collective that there is, by
// every algorithm that has it, of one to five ranks, and what each rank brings to them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/op/op.h"
#include "support/symbolic.h"

namespace ringdist {

inline constexpr int kMostTracedRanks = 5;

struct TraceCase {
  symbolic::Case what;    // of kPointToPoint: only size and count
  std::string algorithm;  // "" for sends
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kNone;
  std::string codec;      // "" for none
  bool residual = false;  // error feedback
  bool many = false;      // more segments than credit and window: its flow control is traced, too

  std::string name() const;  // one line
};

std::vector<Collective> traced_collectives();
// Every algorithm that has it, in the registry's order; of sends and receives, "".
std::vector<std::string> traced_algorithms(Collective kind);
std::vector<TraceCase> trace_cases(Collective kind, const std::string& algorithm, int size);

// What one rank brings to a case: its buffers, in two spans each, and its requests in the order of
// their calls. Values depend on the case, the rank and the element alone.
class TraceRank {
 public:
  // `tag`: of its sends and receives.
  TraceRank(const TraceCase& one, int rank, int32_t tag);

  std::vector<OpRequest> requests();
  // "rank 1: output 01234567, residual 89abcdef", of what is there now.
  std::string result_line() const;

 private:
  OpRequest collective();
  OpRequest message(int peer, bool sends, std::vector<std::byte>& data) const;
  std::shared_ptr<const CodecMap> block_map();
  Buffer over(std::vector<std::byte>& data) const;

  const TraceCase case_;
  const int rank_;
  const int32_t tag_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  std::vector<float> residual_;
};

}  // namespace ringdist
