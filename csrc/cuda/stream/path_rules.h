// By what an op runs on its way, NCCL's or the host's: what the ways go by, and `plan` shows. Pure,
// alike on all ranks; any thread.
#pragma once

#include <cstddef>

#include "algorithm/schedule.h"
#include "base/error.h"
#include "plan/op_spec.h"

namespace ringdist::gpu {

// Below, a turn of the host's memory is dearer than what its threads do.
inline constexpr size_t kLeastByMailboxes = size_t{256} << 10;  // bytes

// NCCL reduces so, where the op reduces at all. `has_fp8`: NcclApi's.
bool nccl_reduces(const OpSpec& request, bool has_fp8);
// NCCL has a collective that does just that; other collectives are schedules on streams.
bool is_nccls_own(const OpSpec& request, bool has_fp8);

// By way of the host: ranks leave it in each other's boxes, where the group has them
// (host_mailboxes.h).
bool suits_mailboxes(const OpSpec& request, int size);

// Why no schedule on a stream does it: kNotSupported, more ranks than a launch takes sources,
// 4 GiB by `lossless`.
Error schedule_refusal(const OpSpec& request, int size);
// That of a schedule on a stream: the planner's - null: none - but for those by hosts, since a
// stream sees ranks, no hosts.
const Algorithm& stream_algorithm(Collective kind, const Algorithm* planned);

}  // namespace ringdist::gpu
