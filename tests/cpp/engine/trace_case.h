// Ops with messages that are recorded in tests/cpp/engine/golden: every collective with every
// algorithm that has it, for one to five ranks. Also holds the data of each rank.
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
  symbolic::Case what;    // for kPointToPoint, only size and count are used
  std::string algorithm;  // "" for sends
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kNone;
  std::string codec;      // "" for none
  bool residual = false;  // error feedback
  bool many = false;  // more segments than credit and window, so that flow control is traced, too

  std::string name() const;  // one line
};

std::vector<Collective> traced_collectives();
// Returns every algorithm that has the collective, in the registry's order, or "" for sends and
// receives.
std::vector<std::string> traced_algorithms(Collective kind);
std::vector<TraceCase> trace_cases(Collective kind, const std::string& algorithm, int size);

// One rank of a case: its buffers, in two spans each, and its requests in call order. The values
// depend only on the case, the rank and the element.
class TraceRank {
 public:
  // `tag` is the tag of its sends and receives.
  TraceRank(const TraceCase& one, int rank, int32_t tag);

  std::vector<OpRequest> requests();
  // Returns "rank 1: output 01234567, residual 89abcdef" for the present content.
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
