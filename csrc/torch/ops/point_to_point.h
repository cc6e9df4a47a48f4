// Operations between two ranks, checked: each throws for arguments that it does not take. They take
// no op number, and have the group's timeout.
#pragma once

#include "torch/ops/call.h"

namespace ringdist {

Call send_call(RankAndSize place, const Tensors& tensors, int to, int tag);
Call recv_call(RankAndSize place, const Tensors& tensors, int from, int tag);
// From whoever sends first.
Call recv_any_call(const Tensors& tensors, int tag);

}  // namespace ringdist
