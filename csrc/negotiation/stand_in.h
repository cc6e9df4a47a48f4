// The part in a call of a rank that has joined, and so has nothing to give: memory that changes no
// result.
#pragma once

#include <vector>

#include "base/error.h"
#include "engine/op/op.h"
#include "negotiation/order/call_description.h"

namespace ringdist {

// Allreduces, one for each dtype, of zeros for SUM and AVG - which divides by the full size all the
// same - and of what leaves MIN, MAX and PRODUCT as they are; of a barrier nothing. They hold their
// memory. Errors: kNotSupported, it is neither; kProtocol, its content cannot be read.
Result<std::vector<OpRequest>> stand_in_for(const CallDescription& description);

}  // namespace ringdist
