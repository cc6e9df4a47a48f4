// What ranks tell each other over the control plane, flooded to every process of the job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "engine/op/message.h"

namespace ringdist {

enum class NoticeKind : uint8_t {
  kAbort = 0,        // the group failed: `error_kind`, `text`, `ranks` say why
  kStalled,          // `rank` has been in op `op` (fingerprint) without progress
  kArrived,          // `rank` has called op `op`: the answer to kStalled
  kLeave,            // `rank` destroyed the group; op is the last one it took part in
  kAbsent,           // `rank` has called ops up to `op` only: the other answer to kStalled
  kExit,             // as kLeave, but because its process exits: counts once that has ended
  kReceivesAborted,  // `rank` destroys the group and receives nothing more; other ops go on
};

struct Notice {
  NoticeKind kind = NoticeKind::kAbort;
  ErrorKind error_kind = ErrorKind::kAborted;
  uint32_t generation = 0;
  uint64_t nonce = 0;
  uint64_t op = 0;
  int32_t rank = 0;        // who says it
  std::vector<int> ranks;  // as in Error
  Fingerprint fingerprint{};
  std::string text;

  // Starts with the nonce, as the control plane asks.
  std::vector<std::byte> encode() const;
  static std::optional<Notice> decode(ConstBytes bytes);
};

// What `rank` says of an op of its group.
Notice make_notice(NoticeKind kind, uint64_t nonce, uint32_t generation, int rank, uint64_t op);
// A group of `rank`'s has failed with the cause: the others cannot finish the op, nor later ones.
Notice abort_notice(uint64_t nonce, uint32_t generation, int rank, uint64_t op, const Error& cause);
// What such a notice makes of our group's ops.
Error cause_of(const Notice& abort);
// It keeps the group from having a single op.
bool aborts_formation(const Notice& notice);

}  // namespace ringdist
