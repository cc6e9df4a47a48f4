// Log of the latest ops of a Context, in flight or ended, for `ringdist status --flight-recorder`.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/op/op.h"

namespace ringdist {

// A ring of the last kKept ops. It takes no memory before the first one.
class OpLog {
 public:
  static constexpr size_t kKept = 2000;  // as many as torch's flight recorder

  // Records the call of an op by `rank` of the group `nonce`, and sets Op::record. May throw
  // std::bad_alloc at the first call; then nothing was recorded.
  void begin(Op& op, uint64_t nonce, int rank);
  // Records the end of an op. Has no effect if the op was not recorded, or if its entry has been
  // replaced.
  void end(const Op& op, TimePoint now, bool failed) noexcept;

  // Returns the ops as a JSON array, oldest first. Each is an array of: its record, a count over
  // all groups; nonce of the group, as text; rank; number among the collectives of its group, or 0;
  // name; dtype; elements of input and of output; the peer of a send or receive, or -1; time of the
  // call and of the end in nanoseconds since 1970, the latter 0 while it is in flight; and whether
  // it has failed.
  std::string json() const;

 private:
  struct Entry {
    uint64_t record = 0;  // 0: none
    uint64_t nonce = 0;
    uint64_t number = 0;
    int64_t input = 0;
    int64_t output = 0;
    TimePoint began;
    TimePoint ended;
    int32_t rank = 0;
    int32_t peer = -1;
    Collective kind = Collective::kAllreduce;
    DType dtype = DType::kFloat32;
    bool sends = false;
    bool has_ended = false;
    bool failed = false;
  };
  std::string json(const Entry& entry, Duration since_1970) const;

  std::vector<Entry> entries_;  // kKept after the first op
  uint64_t last_ = 0;           // record of the latest op
};

}  // namespace ringdist
