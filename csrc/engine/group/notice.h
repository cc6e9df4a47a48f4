// Notices: messages about a group that ranks flood to every process of the job, over the control
// plane. Plain values and pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "engine/op/message.h"

namespace ringdist {

// Kind of a notice. The numbers are part of the wire format.
enum class NoticeKind : uint8_t {
  kAbort = 0,        // the group failed; `error_kind`, `text` and `ranks` describe the cause
  kStalled,          // `rank` waits in op `op` (fingerprint) without progress
  kArrived,          // `rank` has called op `op`: an answer to kStalled
  kLeave,            // `rank` destroyed the group; `op` is the last one it took part in
  kAbsent,           // `rank` has called ops up to `op` only: the other answer to kStalled
  kExit,             // like kLeave, but because its process exits; takes effect once that has ended
  kReceivesAborted,  // `rank` destroys the group and receives nothing more; other ops go on
};

// A notice. Fields that a kind does not use have their default.
struct Notice {
  NoticeKind kind = NoticeKind::kAbort;
  ErrorKind error_kind = ErrorKind::kAborted;
  uint32_t generation = 0;
  uint64_t nonce = 0;  // the group's
  uint64_t op = 0;
  int32_t rank = 0;        // the sender
  std::vector<int> ranks;  // ranks to blame, as in Error
  Fingerprint fingerprint{};
  std::string text;
  // The process that has sent it, as the control plane reports it; 0 for a rank of this process.
  // It is not encoded.
  uint64_t from = 0;

  // Serializes the notice. The bytes start with the nonce, as the control plane requires.
  std::vector<std::byte> encode() const;
  // Returns nothing if the bytes are not a valid notice. Bytes after the last field are ignored,
  // and `rank` and `ranks` are not checked against a group.
  static std::optional<Notice> decode(ConstBytes bytes);
};

// Makes a notice of `rank` about an op of its group.
Notice make_notice(NoticeKind kind, uint64_t nonce, uint32_t generation, int rank, uint64_t op);
// Makes the notice that the group of `rank` has failed with the cause, and that the other ranks can
// finish neither `op` nor later ops.
Notice abort_notice(uint64_t nonce, uint32_t generation, int rank, uint64_t op, const Error& cause);
// Returns the error that a kAbort notice causes in this rank's group.
Error cause_of(const Notice& abort);
// Returns true if the notice aborts the group before its first op, so that it must not form.
bool aborts_formation(const Notice& notice);

}  // namespace ringdist
