// Log of the latest ops of a Context, in flight or ended, for `ringdist status --flight-recorder`
// and for samples of calls.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/op/call_sample.h"
#include "engine/op/op.h"

namespace ringdist {

// A ring of the last kKept ops. It takes no memory before the first one.
class OpLog {
 public:
  static constexpr size_t kKept = 2000;  // torch's flight recorder keeps as many by default

  // Records the call of an op by `rank` of the group `nonce`, and sets Op::record. May throw
  // std::bad_alloc at the first call; then nothing was recorded.
  void begin(Op& op, uint64_t nonce, int rank);
  // Records the end of an op. Has no effect if the op was not recorded, or if its record has been
  // replaced.
  void end(const Op& op, TimePoint now, bool failed) noexcept;

  // Returns the ops as a JSON array, oldest first. Each op is an array of the values that the class
  // Op in the Python module _snapshot has, in the same order.
  std::string json() const;

  using Member = std::pair<uint64_t, int>;  // nonce of a group, and a rank of it here
  // Returns the collectives that were called since a time, oldest first. If a member has called
  // more than CallSample::kMostCalls, it returns a half, a quarter and so on of them. The choice
  // depends on their numbers, so that it is the same on all ranks.
  std::map<Member, std::vector<SampledCall>> calls(TimePoint since) const;

 private:
  struct OpRecord {
    uint64_t record = 0;  // 0: none
    uint64_t nonce = 0;
    uint64_t number = 0;
    int64_t input = 0;
    int64_t output = 0;
    TimePoint began;
    TimePoint ended;
    ThreadUsage usage;
    int32_t rank = 0;
    int32_t peer = -1;
    Collective kind = Collective::kAllreduce;
    DType dtype = DType::kFloat32;
    bool sends = false;
    bool has_ended = false;
    bool failed = false;
  };
  std::string json(const OpRecord& row, Duration since_1970) const;
  // Returns the record before that number by `back`, or null if it is no longer there.
  const OpRecord* before(uint64_t record, uint64_t back) const;
  // Sets the time that the caller spent in other groups before the call.
  void find_elsewhere(SampledCall& call, uint64_t nonce, uint64_t record) const;

  std::vector<OpRecord> rows_;  // kKept after the first op
  uint64_t last_ = 0;           // record of the latest op
};

}  // namespace ringdist
