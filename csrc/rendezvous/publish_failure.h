// What a rank does that cannot create a group.
#pragma once

#include <vector>

#include "base/error.h"
#include "rendezvous/store.h"

namespace ringdist {

// Instead of Rendezvous::publish(): tells the others why it does not come, and counts this
// creation, as they do theirs, so that the next attempt of all meets.
Error publish_failure(Store& store, int rank, const std::vector<int>& members, const Error& why);

}  // namespace ringdist
